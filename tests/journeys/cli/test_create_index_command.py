"""`semlex maintain create-index` from a terminal: what it says first, what it builds, what it refuses."""

import pytest

from semlex.cli.commands.maintain import _print_built
from semlex.cli.terminal import messages
from semlex.store.indexes.build import IndexesBuilt


@pytest.fixture
def filled(shell):
    shell("index", "docs", "-c", "notes")
    return shell


@pytest.mark.slow
def test_what_is_missing_is_built(filled):
    said = filled("maintain", "create-index", "-c", "notes").stderr
    assert "vectors: an index of about" in said
    assert "hnsw_1" in said
    nothing = {"built": [], "busy": [], "dropped": [], "warnings": []}
    assert filled.objects("maintain", "create-index", "-c", "notes") == [nothing]
    (figures,) = filled.objects("status", "-c", "notes", "--json")
    (index,) = figures["vector_indexes"]
    assert (index["name"], index["kind"], index["valid"]) == ("notes_hnsw_1", "hnsw", True)
    assert "notes_hnsw_1: hnsw over halfvec, m 16, ef_construction 64" in filled("status", "-c", "notes").stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--m", "8"], "notes_hnsw_1: hnsw over vector, m 8, ef_construction 64"),
        (["--quantization", "bit", "--concurrently"], "notes_hnsw_1: hnsw over bit"),
        (["--lists", "3", "--probes", "2"], "notes_ivfflat_1: ivfflat over vector, lists 3"),
        (["--kind", "ivfflat"], "notes_ivfflat_1: ivfflat over vector, lists 1"),
    ],
)
def test_another_kind(filled, options, shown):
    filled("maintain", "create-index", "-c", "notes", *options)
    assert shown in filled("status", "-c", "notes").stdout
    assert "dropped notes_" in filled("maintain", "create-index", "-c", "notes", "--kind", "none").stderr
    assert "notes_ivfflat_1" not in filled("status", "-c", "notes").stdout


def test_a_dry_run_and_what_is_refused_build_nothing(filled):
    (said,) = filled.objects("maintain", "create-index", "-c", "notes", "--dry-run", "--quantization", "bit", "--json")
    assert said["estimate"]["rows"] > 0
    assert said["estimate"]["index_bytes"] > 0
    said = filled("maintain", "create-index", "-c", "notes", "--dry-run", "--kind", "none").stderr
    assert "no vector index has to be built" in said
    for options, words in (
        ("--kind tree", "--kind must be one of hnsw, ivfflat, none; got 'tree'"),
        ("--kind hnsw --lists 3", "an index of kind hnsw does not accept --lists"),
        ("--m 8 --lists 3", "an index of kind hnsw does not accept --lists"),
        ("--kind none --ef-construction 40", "an index of kind none does not accept --ef-construction"),
        ("--m 1", "m must be"),
        ("--quantization int8", "quantization must be halfvec or bit, or None; got 'int8'"),
        ("--m many", "whole number"),
    ):
        said = filled("maintain", "create-index", "-c", "notes", *options.split(), code=2).stderr
        assert words in " ".join(said.split()), options
    (figures,) = filled.objects("status", "-c", "notes", "--json")
    assert figures["vector_indexes"] == []


def test_brackets_in_a_warning_are_shown():
    built = IndexesBuilt()
    built.warnings.append("no index of [/a]: a lock")
    with messages.capture() as shown:
        _print_built(built)
    assert shown.get() == "note: no index of [/a]: a lock\nnothing was missing\n"
