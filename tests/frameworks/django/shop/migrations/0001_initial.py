import uuid

from django.db import migrations, models

import semlex.integrations.django


class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.CreateModel("Author", [("id", models.BigAutoField(primary_key=True)), ("name", models.TextField())]),
        migrations.CreateModel(
            "Article",
            [
                ("id", models.BigAutoField(primary_key=True)),
                ("title", models.TextField()),
                ("body", models.TextField(db_column="text")),
                ("tenant", models.IntegerField(default=0)),
                ("status", models.TextField(default="public")),
                ("author", models.ForeignKey("shop.Author", null=True, on_delete=models.CASCADE)),
            ],
        ),
        migrations.CreateModel(
            "Page", [("key", models.UUIDField(primary_key=True, default=uuid.uuid4)), ("text", models.TextField())]
        ),
        migrations.CreateModel(
            "Line",
            [
                ("pk", models.CompositePrimaryKey("page", "number")),
                *((name, models.IntegerField()) for name in ("page", "number")),
                ("text", models.TextField()),
            ],
        ),
        semlex.integrations.django.FollowTable(
            "Article", "shelf", text=["title", "body"], metadata=["author"], live=["status", "tenant"]
        ),
    ]
