"""A shop's database, as its migrations leave it."""

import django
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from psycopg.conninfo import conninfo_to_dict

from semlex.testing import HashEmbedder

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres"}},
    INSTALLED_APPS=["semlex.integrations.django", "tests.frameworks.django.shop"],
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    SEMLEX={"embedding_model": HashEmbedder(8), "use_reranking": False},
    USE_TZ=True,
)
django.setup()


@pytest.fixture
def shop(database_url):
    from semlex.integrations.django.clients import close_clients

    given, connection = conninfo_to_dict(database_url), connections["default"]
    parts = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    connection.settings_dict |= {name: given[part] for name, part in parts.items()}
    call_command("migrate", verbosity=0)
    try:
        yield
    finally:
        close_clients()
        connections.close_all()
