"""Collections that older versions made: opened, migrated, searched and indexed on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

import collection_dump
from semlex.store import migrations

DUMPS = sorted((Path(__file__).parent / "data" / "collections").glob("schema-*"))
COLLECTIONS = sorted(collection_dump.COLLECTIONS)


def restore(url: str, folder: Path) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute((folder / "dump.sql").read_bytes())


def expected_answers(folder: Path) -> dict[str, Any]:
    lines = (folder / "answers.json").read_text(encoding="utf-8").splitlines()
    return {told.pop("collection"): told for told in map(json.loads, lines)}


def assert_same_answers(url: str, folder: Path) -> None:
    expected = expected_answers(folder)
    assert sorted(expected) == COLLECTIONS
    for collection in COLLECTIONS:
        found = collection_dump.answers(url, collection)
        leaves = _flat(expected[collection])
        # Scores are sums of floats: another order of adding them is no difference.
        close = {
            at: pytest.approx(leaf, 1e-6, 1e-7) if isinstance(leaf, float) else leaf for at, leaf in leaves.items()
        }
        assert _flat(found) == close


def _flat(value: Any, place: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    """Every leaf by its place, so that a difference says where it is."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    if not entries:
        return {place: value}
    return {at: leaf for key, inner in entries for at, leaf in _flat(inner, (*place, key)).items()}


@pytest.mark.parametrize("folder", DUMPS, ids=lambda folder: folder.name)
def test_an_old_collection_answers_as_it_did(database_url: str, folder: Path) -> None:
    restore(database_url, folder)
    assert_same_answers(database_url, folder)
    with psycopg.connect(database_url) as connection:
        registry = connection.execute("SELECT max(version) FROM semlex.registry_version").fetchone()
        versions = connection.execute("SELECT DISTINCT schema_version FROM semlex.collection").fetchall()
        names = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'semlex'::regnamespace UNION ALL "
            "SELECT attname FROM pg_attribute JOIN pg_class ON attrelid = pg_class.oid "
            "WHERE relnamespace = 'semlex'::regnamespace AND relkind = 'r'"
        ).fetchall()
    assert registry == (len(migrations.REGISTRY),)
    assert versions == [(len(migrations.COLLECTION),)]
    assert [name for (name,) in names if "lexical" in name] == []
