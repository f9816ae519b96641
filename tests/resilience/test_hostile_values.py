"""Hostile values at every door: stored as they are, or refused by an error of ours with nothing written."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import psycopg
import pytest
from psycopg import sql

from semlex.errors import SemlexError
from semlex.json_values import json_tree
from semlex.retriever.synchronous import SyncRetriever
from semlex.testing import HashEmbedder
from tests.support import hostile_values as hostile
from tests.support.retrievers import sync_opened

T = TypeVar("T")
TABLES = ("chunk", "document", "embedding_1", "tombstone")


@pytest.fixture
def retriever(database_url: str) -> Iterator[SyncRetriever]:
    with sync_opened(database_url, HashEmbedder(hostile.DIMENSIONS)) as opened:
        opened.add_documents([hostile.good_document(random.Random(0))])
        yield opened


def rows_of(connection: psycopg.Connection[Any]) -> tuple[int, ...]:
    """How many rows each table has that a document leaves something in."""
    counts = sql.SQL(", ").join(
        sql.SQL("(SELECT count(*) FROM {})").format(sql.Identifier("semlex", f"default_collection_{table}"))
        for table in TABLES
    )
    row = connection.execute(sql.SQL("SELECT {}").format(counts)).fetchone()
    assert row is not None
    return row


def same(given: Any, found: Any) -> bool:
    """Whether JSON came back as it went in, its numbers with their kinds."""
    if isinstance(given, dict):
        return (
            isinstance(found, dict)
            and sorted(given) == sorted(found)
            and all(same(given[name], found[name]) for name in given)
        )
    if isinstance(given, (list, tuple)):
        return isinstance(found, list) and len(given) == len(found) and all(map(same, given, found))
    return type(given) is type(found) and given == found


def answer_of(call: Callable[[], T]) -> T | None:
    """What a call answers; None where it is refused, in a message of bounded length."""
    try:
        return call()
    except SemlexError as error:
        message = str(error)
    assert 0 < len(message) < 1_500
    return None


def add(retriever: SyncRetriever, connection: psycopg.Connection[Any], draw: random.Random) -> bool:
    """Documents, some of them hostile: all are there afterwards, or none. Returns whether they were refused."""
    documents = [hostile.good_document(draw) for _ in range(draw.randrange(3))]
    documents.insert(draw.randint(0, len(documents)), hostile.document(draw))
    embeddings = hostile.vectors(draw, len(documents))
    before = rows_of(connection)
    ids = answer_of(lambda: retriever.add_documents(documents, embeddings))
    if ids is None:
        assert rows_of(connection) == before
        return True
    found = {document.id: document for document in retriever.get(ids)}
    assert set(found) == set(ids)
    last = dict(zip(ids, documents, strict=True))
    for chunk_id, given in last.items():
        stored = found[chunk_id]
        assert stored.content == given.content
        assert same(json_tree(given.metadata), dict(stored.metadata)), repr(given.metadata)
        assert stored.updated_at == given.updated_at
        # A document that takes the place of another keeps the time at which that was made.
        assert stored.created_at == given.created_at or rows_of(connection)[0] < before[0] + len(last)
        # Ids may be whole numbers and are stored as their digits.
        parent = None if given.parent_id is None else str(given.parent_id)
        assert (stored.parent_id, stored.child_ids) == (parent, [str(child) for child in given.child_ids])
    return False


def ask(retriever: SyncRetriever, connection: psycopg.Connection[Any], draw: random.Random) -> bool:
    """A question with hostile words, filter or vector; nothing changes. Returns whether it was refused."""
    before = rows_of(connection)
    options: dict[str, Any] = {}
    if draw.random() < 0.3:
        options["filters"] = hostile.filters(draw)
    if draw.random() < 0.2:
        made = hostile.vectors(draw, 1)
        options["vector"] = None if made is None or len(made) == 0 else made[0]
    hits = answer_of(lambda: retriever.search(hostile.text(draw), draw.choice((1, 5, 1000)), **options))
    answer_of(lambda: retriever.count(options.get("filters")))
    assert rows_of(connection) == before
    json.dumps([hit.metadata for hit in hits or ()])
    return hits is None


def look_up(retriever: SyncRetriever, connection: psycopg.Connection[Any], draw: random.Random) -> bool:
    """Ids that are hostile and not there: nothing is found, or they are refused."""
    before = rows_of(connection)
    ids: list[Any] = [f"not there {hostile.text(draw)}" for _ in range(draw.randrange(3))]
    if draw.random() < 0.3:
        ids.append(draw.choice(hostile.STRANGERS))
    found = answer_of(lambda: retriever.get(ids))
    assert rows_of(connection) == before
    assert not found
    return found is None


@pytest.mark.timeout(3600)
def test_hostile_values(database_url: str, retriever: SyncRetriever, full: bool) -> None:
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    doors = (add, add, ask, look_up)
    tries, refused = (20_000 if full else 400), dict.fromkeys(doors, 0)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for number in range(tries):
            door = draw.choice(doors)
            try:
                refused[door] += door(retriever, connection, draw)
            except Exception as error:
                error.add_note(f"{door.__name__}, try {number} of seed {seed}")
                raise
        assert all(0 < count < tries for count in refused.values())
        # After all of it: the same rows by both legs, and no row that is only half there.
        chunks, _, vectors, _ = rows_of(connection)
        assert chunks == vectors == retriever.count()
        assert retriever.search("harmless text", 5).mode == "hybrid"
