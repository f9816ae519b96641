from django.db import migrations

from semlex.integrations.django import FollowTable


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]
    operations = [
        FollowTable("Page", "shelf", "pages", text=["text"], changes="trigger"),
        FollowTable("Line", "shelf", text=["text"]),
    ]
