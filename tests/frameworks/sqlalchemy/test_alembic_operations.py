"""Tables are followed by Alembic's migrations, in their transaction."""

import psycopg
import pytest
from alembic.autogenerate import render_python_code  # noqa: F401 - what a program has loaded beside
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from semlex import SyncClient
from semlex.errors import ConfigurationError
from semlex.integrations.alembic import FollowTable
from tests.support.followed import articles

OPTIONS = {"text": ["title", "body"], "changes": "trigger"}


def names(url):
    with SyncClient(url, "none", use_reranking=False) as client:
        return [one.table.name for one in client.collection("shelf").tables.followed()]


def migrate(connection, *, stop=False):
    op = Operations(MigrationContext.configure(connection))
    if stop:
        op.unfollow_table("news", "shelf")
    else:
        op.follow_table("shop.articles", "shelf", name="news", **OPTIONS)


def test_a_migration_follows_a_table_or_nothing(database_url):
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database_url))
    with articles(database_url, rows=1) as table:
        assert names(database_url) == []
        with engine.connect() as connection, connection.begin() as begun:
            migrate(connection)
            begun.rollback()
        assert names(database_url) == []
        with engine.begin() as connection:
            migrate(connection)
        assert names(database_url) == ["news"]
        triggers = "SELECT count(*) > 0 FROM pg_trigger WHERE tgrelid = 'shop.articles'::regclass"
        assert table.connection.execute(triggers).fetchone() == (True,)
        with engine.begin() as connection:
            migrate(connection, stop=True)
        assert names(database_url) == []
        assert table.connection.execute(triggers).fetchone() == (False,)
    engine.dispose()


async def test_a_migration_of_an_asynchronous_engine(database_url):
    async def connect():
        return await psycopg.AsyncConnection.connect(database_url)

    engine = create_async_engine("postgresql+psycopg://", async_creator=connect)
    with articles(database_url):
        async with engine.begin() as connection:
            await connection.run_sync(migrate)
    await engine.dispose()


def test_the_reverse_and_what_cannot_be_printed():
    reverse = FollowTable("shop.articles", "shelf", semlex_schema="own").reverse()
    assert (reverse.name, reverse.collection, reverse.schema, reverse.keep) == ("articles", "shelf", "own", False)
    context = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True})
    op = Operations(context)
    with pytest.raises(ConfigurationError, match="semlex follow --sql"):
        op.follow_table("articles", "shelf", text=["title"])
