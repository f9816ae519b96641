"""The table of the articles, and that it is followed."""

from django.db import migrations, models

from semlex.integrations.django import FollowTable


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel(
            "Article",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("title", models.TextField()),
                ("body", models.TextField()),
                ("status", models.TextField(default="public")),
            ],
        ),
        FollowTable("Article", "shop", text=["title", "body"], live=["status"], changes="trigger"),
    ]
