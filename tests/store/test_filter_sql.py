"""The SQL of filters means what the evaluator says; indexes serve it; no value becomes SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from semlex import _core
from semlex.filters.evaluate import holds
from semlex.store.query.filters import parse_filters
from semlex.store.schema.names import Names
from tests.support.filter_trees import documents, metadata_trees

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semlex.filters.tree import FilterTree

pytestmark = pytest.mark.pg16
NAMES = Names("semlex", "docs")


@pytest.fixture(scope="module")
def rows(server_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection with a table of metadata; its index is the one that large collections have."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute("CREATE TEMP TABLE rows (n int, metadata jsonb)")
        connection.execute("CREATE INDEX ON rows USING gin (metadata jsonb_path_ops)")
        yield connection


def store(connection: psycopg.Connection[Any], found: list[dict[str, Any]]) -> None:
    connection.execute("TRUNCATE rows")
    texts = [_core.to_json(one).decode() for one in found]
    connection.execute(
        "INSERT INTO rows SELECT n, t::jsonb FROM unnest(%s::text[]) WITH ORDINALITY AS t(t, n)", [texts]
    )


def answers(connection: psycopg.Connection[Any], trees: list[FilterTree]) -> list[tuple[bool, ...]]:
    """Of each row, in order: whether each filter lets it pass."""
    made = [parse_filters(tree, NAMES, prefix=f"f{number}") for number, tree in enumerate(trees)]
    columns = sql.SQL(", ").join(sql.SQL("{} IS TRUE").format(one.expression) for one in made)
    parameters = {name: value for one in made for name, value in one.parameters.items()}
    return connection.execute(sql.SQL("SELECT {} FROM rows AS c ORDER BY n").format(columns), parameters).fetchall()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_sql_equals_the_evaluator(rows: psycopg.Connection[Any], full: bool) -> None:
    pairs = 0

    @given(st.lists(documents, min_size=40, max_size=40), st.lists(metadata_trees, min_size=40, max_size=40))
    @settings(max_examples=70 if full else 4)
    def compare(found: list[dict[str, Any]], trees: list[FilterTree]) -> None:
        nonlocal pairs
        store(rows, found)
        for document, row in zip(found, answers(rows, trees), strict=True):
            for tree, passes in zip(trees, row, strict=True):
                assert passes == holds(tree, document), (str(tree), document)
        pairs += len(found) * len(trees)

    compare()
    assert pairs >= (100_000 if full else 5_000)
