"""How answers are written: the hits as they are, by the same names and values as `SearchResults.to_dict`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from semlex.server.request_context import as_json, rows_as_json
from semlex.types.queries import Route
from semlex.types.results import DocumentHits, HitMetadata, LegReport, SearchResult, SearchResults

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
numbers = st.floats(allow_nan=False, allow_infinity=False)
plain = st.none() | st.booleans() | st.integers() | numbers | texts
metadata = st.dictionaries(texts, st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(texts, inner)))
hits = st.builds(
    SearchResult,
    content=texts,
    metadata=st.builds(HitMetadata, metadata, st.none() | numbers, st.none()),
    id=texts,
    child_ids=st.lists(texts, max_size=2),
    created_at=st.datetimes(timezones=st.just(UTC)),
    heading_path=st.lists(texts, max_size=3).map(tuple),
    line=st.none() | st.integers(1, 10**9),
    rank=st.integers(1, 1000),
    vector_score=st.none() | numbers,
)


@pytest.mark.slow
@given(hits=st.lists(hits, max_size=3), warnings=st.lists(texts, max_size=2))
@example(hits=[SearchResult("text", metadata={"whole": 2**70, "less": -(2**64)})], warnings=[])
def test_hits_are_what_their_dictionary_says(hits, warnings):
    """The slow twin is `to_dict`; a whole number of any size is written as it is."""
    found = SearchResults(
        hits,
        legs={"vector": LegReport("vector", "scan", 0.5, None, 3, 1.25)},
        timings={"database": 1.5},
        warnings=warnings,
        documents=[DocumentHits(1, "manual", "/manual", "a.md", hits)],
        route=Route("factual", "short", "rules", None),
    )
    whole = found.to_dict()
    assert json.loads(rows_as_json("hits", found, vars(found), None)) == whole
    some = json.loads(rows_as_json("hits", found, vars(found), ["id", "rank"]))
    short = [{"id": hit["id"], "rank": hit["rank"]} for hit in whole["hits"]]
    assert some == whole | {"hits": short, "documents": [{**whole["documents"][0], "hits": short}]}
    assert json.loads(rows_as_json("chunks", found, {}, ["id", "rank"])) == {"chunks": short}


def test_what_json_has_no_type_for():
    @dataclass
    class Held:
        found: Any

    moment = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    value = {
        "time": moment,
        "id": UUID(int=1),
        "path": Path("a") / "b",
        "bytes": b"\x01\xff",
        "set": {3, 1, 2},
        "held": Held([moment, {"b", "a"}]),
    }
    expected = {
        "time": "2026-01-02T03:04:05.000006+00:00",
        "id": "00000000-0000-0000-0000-000000000001",
        "path": str(Path("a") / "b"),
        "bytes": "01ff",
        "set": [1, 2, 3],
        "held": {"found": ["2026-01-02T03:04:05.000006+00:00", ["a", "b"]]},
    }
    assert json.loads(as_json(value)) == expected
    assert json.loads(as_json(value | {"large": 2**64})) == expected | {"large": 2**64}
