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


def names(url):
    with SyncClient(url, "none", use_reranking=False) as client:
        return [one.table.name for one in client.collection("shelf").tables.followed()]


def follow(connection):
    op = Operations(MigrationContext.configure(connection))
    op.follow_table("shop.articles", "shelf", name="news", text=["title", "body"], changes="trigger")


def test_a_migration_follows_a_table_or_nothing(database_url):
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database_url))
    with articles(database_url, rows=1) as table:
        assert names(database_url) == []
        with engine.connect() as connection, connection.begin() as begun:
            follow(connection)
            begun.rollback()
        assert names(database_url) == []
        with engine.begin() as connection:
            follow(connection)
        assert names(database_url) == ["news"]
        triggers = "SELECT count(*) > 0 FROM pg_trigger WHERE tgrelid = 'shop.articles'::regclass"
        assert table.connection.execute(triggers).fetchone() == (True,)
        with engine.begin() as connection:
            Operations(MigrationContext.configure(connection)).unfollow_table("news", "shelf")
        assert names(database_url) == []
        assert table.connection.execute(triggers).fetchone() == (False,)
    engine.dispose()


async def test_a_migration_of_an_asynchronous_engine(database_url):
    made = {"async_creator": lambda: psycopg.AsyncConnection.connect(database_url)}
    engine = create_async_engine("postgresql+psycopg://", **made)
    with articles(database_url):
        async with engine.begin() as connection:
            await connection.run_sync(follow)
    await engine.dispose()


def test_the_reverse_and_what_cannot_be_printed():
    reverse = FollowTable("shop.articles", "shelf", semlex_schema="own").reverse()
    assert (reverse.name, reverse.collection, reverse.schema, reverse.keep) == ("articles", "shelf", "own", False)
    op = Operations(MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True}))
    with pytest.raises(ConfigurationError, match="semlex follow --sql"):
        op.follow_table("articles", "shelf", text=["title"])
