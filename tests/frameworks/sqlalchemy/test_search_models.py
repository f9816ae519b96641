"""Entities in the order of a search, inside the transaction of a session, with and without an event loop."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, contextmanager
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import ForeignKey, create_engine, orm
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from semlex import Client, SyncClient
from semlex.errors import ConfigurationError
from semlex.integrations import best_rows
from semlex.integrations import sqlalchemy as integration
from semlex.integrations.sqlalchemy import register, search_models
from semlex.testing import HashEmbedder
from tests.support.followed import articles

OPTIONS = {"embedding_model": HashEmbedder(8), "use_reranking": False}


class Base(DeclarativeBase):
    __table_args__ = {"schema": "shop"}


class Article(Base):
    __tablename__ = "articles"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    body: Mapped[str]
    author: Mapped[str | None]
    status: Mapped[str]
    notes: Mapped[list[Note]] = orm.relationship()


class Note(Base):
    __tablename__ = "notes"
    id: Mapped[int] = mapped_column(primary_key=True)
    article_id: Mapped[int] = mapped_column(ForeignKey("shop.articles.id"))


def mapped(kind):
    class Own(DeclarativeBase):
        pass

    types = {
        "uuid": {"id": postgresql.UUID(as_uuid=False)},
        "text": {"id": postgresql.TEXT},
        "composite": {"tenant_id": postgresql.INTEGER, "slug": postgresql.TEXT},
    }
    columns = {name: mapped_column(of, primary_key=True) for name, of in types[kind].items()}
    table = {"__tablename__": "articles", "__table_args__": {"schema": "shop"}}
    return type("Keyed", (Own,), {**table, **columns, "title": mapped_column(postgresql.TEXT)})


@contextmanager
def followed(url, key="int", rows=0, **options):
    with articles(url, key, rows=rows) as table, SyncClient(url, **OPTIONS) as client:
        collection = client.collection("shelf")
        collection.add_texts(["apple of another source"], ids=["other"])
        collection.tables.follow(**table.options(metadata=[], live=["status"]) | options)
        collection.tables.sync()
        table.connection.execute("CREATE TABLE shop.notes (id int PRIMARY KEY, article_id int)")
        yield collection, table


@pytest.fixture(autouse=True)
def _forget_models():
    yield
    integration._REGISTERED.clear()


@contextmanager
def session_of(url):
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url))
    with Session(engine) as session:
        yield session
    engine.dispose()


@asynccontextmanager
async def async_session_of(url):
    engine = create_async_engine("postgresql+psycopg://", async_creator=lambda: psycopg.AsyncConnection.connect(url))
    async with AsyncSession(engine) as session:
        yield session
    await engine.dispose()


def test_entities_come_in_the_order_of_their_hits(database_url):
    with followed(database_url, rows=12) as (collection, table), session_of(database_url) as session:
        table.connection.execute("INSERT INTO shop.notes VALUES (1, 3)")
        options = {"collection": collection, "loading": [orm.selectinload(Article.notes)]}
        found = search_models(session, Article, "title 3 apple", 5, **options)
        assert [one.hit.key for one in found] == [one.id for one in found]
        assert [one.hit.rank for one in found] == [1, 2, 3, 4, 5]
        expected = collection.search("title 3 apple", 5, {"@source": "articles"})
        assert [one.id for one in found] == [hit.key for hit in expected]
        assert {one.id: [note.id for note in one.notes] for one in found}[3] == [1]
        assert found[0] is session.get(Article, found[0].id)
        # Registered once, for a base or a model; a name of its own in the collection.
        register(Base, collection)
        assert len(search_models(session, Article, "apple", 20)) == 12
        factory = orm.scoped_session(orm.sessionmaker(session.get_bind()))
        assert len(search_models(factory, Article, "apple", mode="keyword")) == 10
        factory.remove()


async def test_a_session_with_an_event_loop(database_url):
    with followed(database_url, rows=3) as (synchronous, table):
        async with Client(database_url, **OPTIONS) as client, async_session_of(database_url) as session:
            register(Article, client.collection("shelf"))
            found = await search_models(session, Article, "apple", 10, filters="@row.status = 'public'")
            assert sorted(one.hit.key for one in found) == [0, 1, 2]
            table.update(0, status="draft")
            assert len(await search_models(session, Article, "apple", filters="@row.status = 'public'")) == 2
            with pytest.raises(ConfigurationError, match="is synchronous: use one of Client"):
                await search_models(session, Article, "apple", collection=synchronous)
            with session_of(database_url) as other, pytest.raises(ConfigurationError, match="of connect_sync"):
                search_models(other, Article, "apple")


def test_a_search_sees_the_transaction_of_its_session(database_url):
    with followed(database_url, rows=4) as (collection, table), session_of(database_url) as session:
        first, second, *_ = search_models(session, Article, "apple", collection=collection)
        first.status = "draft"  # not sent yet
        session.delete(second)
        public = search_models(session, Article, "apple", collection=collection, filters="@row.status = 'public'")
        assert {one.id for one in public} == {0, 1, 2, 3} - {first.id, second.id}
        where = [Article.status == "draft"]
        assert search_models(session, Article, "apple", collection=collection, where=where) == [first]
        session.rollback()
        assert len(search_models(session, Article, "apple", collection=collection)) == 4
        table.delete(0)
        assert len(search_models(session, Article, "apple", collection=collection)) == 3


@pytest.mark.parametrize("key", ["uuid", "text", "composite"])
def test_keys_of_every_kind(database_url, key):
    with followed(database_url, key, rows=60) as (collection, table), session_of(database_url) as session:
        model = mapped(key)
        found = search_models(session, model, "apple", 60, collection=collection)
        assert {one.hit.key for one in found} == {table.key_of(number) for number in range(60)}
        for one in found:
            own = (one.tenant_id, one.slug) if key == "composite" else UUID(one.id) if key == "uuid" else one.id
            assert own == one.hit.key
        # Few rows meet the condition, and none of them is among the best hits.
        worst = [one.title for one in found[-2:]]
        rest = search_models(session, model, "apple", 2, collection=collection, where=[model.title.in_(worst)])
        assert sorted(one.title for one in rest) == sorted(worst)


@pytest.mark.parametrize("k", [1, 10, 50])
def test_k_rows_meet_a_condition_whatever_their_share(database_url, monkeypatch, caplog, k):
    with followed(database_url, rows=130) as (collection, _), session_of(database_url) as session:
        for below in (130, 100, 20, 1, 0):
            wanted = min(k, below)
            found = search_models(session, Article, "apple", k, collection=collection, where=[Article.id < below])
            assert len(found) == len({one.id for one in found} & {*range(below)}) == wanted
        monkeypatch.setattr(best_rows, "MAX_KEYS", 3)
        monkeypatch.setattr(best_rows, "MAX_TOP_K", 41)
        with caplog.at_level(logging.WARNING, "semlex"):
            found = search_models(session, Article, "apple", 40, collection=collection, where=[Article.id < 20])
        assert len(found) < 20
        assert "columns in live=" in caplog.text


def test_what_is_refused(database_url):
    class Other(DeclarativeBase):
        pass

    class Unknown(Other):
        __tablename__ = "articles"
        __table_args__ = {"schema": "shop"}
        id: Mapped[int] = mapped_column(primary_key=True)
        author: Mapped[str] = mapped_column(primary_key=True)

    class Hit(Other):
        __tablename__ = "hits"
        id: Mapped[int] = mapped_column(primary_key=True)
        hit: Mapped[str]

    with followed(database_url, rows=1) as (collection, _), session_of(database_url) as session:
        of_shelf = {"collection": collection}
        for given, model, options, message in (
            (session, Unknown, {}, r"call register\(Unknown, collection\) once"),
            (session, Unknown, of_shelf, "is not the primary key of its model"),
            (session, Hit, of_shelf, "already has an attribute 'hit'"),
            (session, Article, of_shelf | {"group_by": "document"}, "does not accept group_by"),
            (session, Article, of_shelf | {"k": 0}, "k must be between 1 and 1,000"),
            (None, Article, of_shelf, "a Session or an AsyncSession"),
        ):
            with pytest.raises(ConfigurationError, match=message):
                search_models(given, model, "apple", **options)
