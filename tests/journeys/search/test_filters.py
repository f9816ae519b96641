"""Filters: what passes, what is refused with its remedy, and what is told when nothing passed."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from semlex import Document, SyncRetriever
from semlex.cli.app import app
from semlex.errors import ValidationError
from semlex.store.query.filters import COLUMNS, Filter, OneOf, parse_filters, value_from_text
from semlex.testing import HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def shelf(server_url: str) -> Iterator[SyncRetriever]:
    """Four documents; tests only read them."""
    name = sql.Identifier("test_filters")
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE semlex_test_template").format(name))
    documents = [
        Document("a text", {"source_document": "a.md", "year": 2024, "draft": True}, id="number"),
        Document("a text", {"source_document": "b.md", "year": "2024", "draft": "true"}, id="words"),
        Document("a text", {"source_document": "c.md", "year": 2024.5, "size": "1e3"}, id="half"),
        Document("a text", {"source_document": "d.md"}, id="none"),
    ]
    url = make_conninfo(server_url, dbname="test_filters")
    with SyncRetriever(url, HashEmbedder(8), use_reranking=False) as retriever:
        retriever.add_documents(documents)
        yield retriever
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@pytest.mark.parametrize(
    ("filters", "place", "told"),
    [
        (["x"], "filters", "a mapping of field names to values"),
        ("source_document=a.md", "filters", "a mapping"),
        (5, "filters", "a mapping"),
        ([], "filters", "a mapping"),
        ({5: "x"}, "filters", "keys of JSON are strings"),
        ({"source_document": ["a.md", "b.md"]}, "filters['source_document']", "search once for each"),
        ({"chapter_title": 5}, "filters['chapter_title']", "one text"),
        ({"parent_chunk_id": None}, "filters['parent_chunk_id']", "one text"),
        ({"year": {"$gt": 3}}, "filters['year']", "no operators; got the operator '$gt'"),
        ({"tags": [{"any": {"$in": [1]}}]}, "filters['tags']", "no operators"),
        ({"$or": [{"year": 1}]}, "filters['$or']", "equality only"),
        ({"year": {1, 2}}, "filters", "which JSON does not know"),
        ({"year": float("nan")}, "filters", "NaN"),
    ],
    ids=str,
)
def test_what_would_find_nothing_is_refused(shelf: SyncRetriever, filters: Any, place: str, told: str) -> None:
    for call in (lambda: shelf.search("text", filters=filters), lambda: shelf.count(filters)):
        with pytest.raises(ValidationError) as caught:
            call()
        assert [(one.row, one.field) for one in caught.value.errors] == [(-1, place)]
        assert told in str(caught.value)


def test_every_broken_condition_is_told() -> None:
    with pytest.raises(ValidationError) as caught:
        parse_filters({"source_document": 1, "year": {"$lt": 1}, "fine": 1})
    assert [one.field for one in caught.value.errors] == ["filters['source_document']", "filters['year']"]


def test_a_condition_without_values_is_a_filter() -> None:
    assert Filter().is_empty
    assert parse_filters({}).is_empty
    assert not Filter((sql.SQL("c.parent_chunk_id IS NULL"),)).is_empty


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024", OneOf(("2024", 2024))),
        ("-1.5", OneOf(("-1.5", -1.5))),
        ("true", OneOf(("true", True))),
        ("1e400", "1e400"),
        ("NaN", "NaN"),
        ("null", "null"),
        ("[1]", "[1]"),
        ('"2024"', '"2024"'),
        ("2024-01-01", "2024-01-01"),
        ("", ""),
    ],
)
def test_what_a_value_of_the_command_line_stands_for(text: str, value: Any) -> None:
    assert value_from_text(text) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year=2024", {"number", "words"}),
        ("draft=true", {"number", "words"}),
        ("year=2024.5", {"half"}),
        ("size=1e3", {"half"}),
        ("source_document=a.md", {"number"}),
        ("year=2025", set()),
    ],
)
def test_the_command_line_matches_numbers_and_their_texts(
    shelf: SyncRetriever, server_url: str, text: str, expected: set[str]
) -> None:
    url = make_conninfo(server_url, dbname="test_filters")
    arguments = ["search", "text", "--database", url, "-c", "default_collection", "--model", "none", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--filter", text])
    assert result.exit_code == 0, result.output
    *hits, _summary = map(json.loads, result.stdout.splitlines())
    assert {hit["id"] for hit in hits} == expected


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("source", "did you mean source_document?"),
        ("document", "did you mean source_document?"),
        ("chapter", "did you mean chapter_title?"),
        ("nowhere", "filters know source_document, chapter_title"),
    ],
)
def test_a_field_that_no_chunk_has(
    shelf: SyncRetriever, caplog: pytest.LogCaptureFixture, name: str, told: str
) -> None:
    for mode in ("vector", "keyword", None):
        results = shelf.search("text", filters={name: "a.md", "year": 2024}, mode=mode)  # type: ignore[arg-type]
        assert results == []
        assert [one for one in results.warnings if f"no chunk has the metadata field '{name}'" in one and told in one]
        assert not any("'year'" in one for one in results.warnings)
    with caplog.at_level(logging.WARNING, "semlex"):
        assert shelf.count({name: "a.md"}) == 0
    assert f"the metadata field '{name}'" in caplog.text


def test_fields_that_chunks_have_are_no_warning(shelf: SyncRetriever, database_url: str) -> None:
    assert shelf.search("text", filters={"year": 1999, "source_document": "a.md"}).warnings == []
    assert shelf.search("text", filters={"source_document": "z.md"}).warnings == []
    with SyncRetriever(database_url, "none") as empty:
        assert empty.search("text", filters={"year": 1}).warnings == []
    assert set(COLUMNS) > {"source_document"}
