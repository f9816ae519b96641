"""The command line as people and programs use it: a process, its streams, its exit code."""

import re

import pytest

from semlex.retriever.synchronous import SyncRetriever


@pytest.mark.slow
def test_index_search_status_drop(shell):
    [report] = shell.objects("index", "docs", "--collection", "handbook")
    assert (report["added"], report["failed"]) == (2, 0)
    *hits, summary = shell.objects("search", "rotate a key", "-c", "handbook", "--top-k", "1")
    with SyncRetriever(shell.environment["DATABASE_URL"], collection="handbook") as retriever:
        [found] = retriever.search("rotate a key", 1)
    assert [hit.keys() for hit in hits] == [found.to_dict().keys()]
    assert hits[0]["source_document"] == "keys.md"
    assert hits[0]["keyword_rank"] == 1
    assert hits[0]["fused_score"] == hits[0]["vector_contribution"] + hits[0]["keyword_contribution"]
    assert summary["fusion"] == "score"
    assert summary["type"] == "summary"
    assert summary["mode"] == "hybrid"
    assert summary["timings"]["total"] > 0
    shown = re.findall(r"^ *(\S[\w ]*?)(?:  .*)?$", shell("status", "-c", "handbook").stdout, re.MULTILINE)
    assert shown[:5] == ["Collection", "name", "description", "server", "Postgres"]
    assert shown[5:11] == ["Content", "sources", "documents", "chunks", "tokens", "tokens of a chunk"]
    assert shown[11:15] == ["Vectors", "model", "dimensions", "chunks with a vector"]
    assert shown[15:] == ["Words", "engine", "size", "entries", "Last run", "begun", "documents", "took"]
    [status] = shell.objects("status", "-c", "handbook")
    assert status["documents"] == 2
    assert status["last_run"]["added"] == 2
    [entry] = shell.objects("collections")
    assert (entry["name"], entry["description"]) == ("handbook", "Among its titles: Keys.")
    assert shell.objects("collections", "describe", "All", "rules", "-c", "handbook") == [{"description": "All rules"}]
    assert shell("collections", "describe", "-c", "handbook").stdout == "All rules\n"
    shell("collections", "describe", "--reset", "-c", "handbook")
    assert status["description"] == shell.objects("status", "-c", "handbook")[0]["description"] == entry["description"]
    [*hits, _] = shell.objects("search", "grass", "--terms", "rotate --key", "-c", "handbook", "--top-k", "1")
    assert hits[0]["source_document"] == "keys.md"
    assert "--chat-model" in shell("search", "grass", "--rewrite", "-c", "handbook", code=2).stderr
    assert shell.objects("collections", "drop", "handbook", "--yes") == [{"collection": "handbook", "dropped": True}]
    assert shell.objects("collections") == []


def test_people_see_places_scores_and_marked_words(shell):
    shell("index", "docs")
    done = shell("search", "rotate a key")
    assert done.stdout.startswith("1. docs/keys.md:5  Keys\n   Rotate a key every ninety days.\n")
    for said in ("keyword #", "vector #", "fused"):
        assert said not in done.stdout
    assert not re.search(r"\d ms|hybrid search|similarity", done.stderr)
    assert "keyword #1" in shell("search", "rotate a key", "--explain").stdout
    done = shell("search", "rotate a key", "-v")
    assert "keyword #1" in done.stdout
    assert "vector #" in done.stdout
    assert re.search(r"fused \d\.\d{5} = -?\d\.\d{3} vector \+ 0\.\d{3} keyword", done.stdout)
    assert "Rotate a key every ninety days." in done.stdout
    assert "**" not in done.stdout
    assert "hybrid search" in done.stderr
    assert "wordllama" in done.stderr


def test_try_is_index_and_search_in_one(shell):
    first = shell("try", "docs", "where are keys stored?")
    assert "docs/keys.md" in first.stdout
    assert "2 new" in first.stderr
    assert "static" in first.stderr
    assert "2 unchanged" in shell("try", "docs", "yellow fruit").stderr


@pytest.mark.slow
def test_keyword_only_then_embed(shell):
    shell("index", "docs", "--model", "none")
    *_, summary = shell.objects("search", "banana")
    assert summary["mode"] == "keyword"
    refused = shell("search", "banana", "--mode", "vector", code=4)
    assert "semlex models fill" in refused.stderr
    [embedded] = shell.objects("models", "fill", "--model", "static")
    assert embedded["embedded"] > 0
    *_, summary = shell.objects("search", "banana", "--mode", "vector")
    assert summary["mode"] == "vector"


def test_a_bad_file_is_listed_and_the_code_says_so(shell):
    (shell.folder / "docs" / "broken.md").write_bytes(b"\xff\x00")
    done = shell("index", "docs", code=5)
    assert "broken.md" in done.stderr
    assert "2 new" in done.stderr


def test_a_setting_bounds_the_size_of_files(shell):
    (shell.folder / "docs" / "large.md").write_bytes(b"word " * 250_000)
    shell.environment["SEMLEX_MAX_FILE_MIB"] = "1"
    told = "large.md: 1.2 MiB or more, the limit is 1: split it, or raise the setting max_file_mib"
    for command in (("index", "docs"), ("sync", "docs"), ("documents", "preview", "docs")):
        assert told in shell(*command, code=5).stderr
    assert "too_large" in shell("why", "large.md", "rotate").stdout


@pytest.mark.slow
def test_brackets_in_messages_are_shown(shell):
    # They are markup to the library that prints; `semlex[torch]` must not lose its extra.
    (shell.folder / "[docs]").mkdir()
    (shell.folder / "[docs]" / "page.md").write_text("# Keys [old]\n\nAn old key.\n", encoding="utf-8")
    done = shell("index", "[nowhere]", code=2)
    assert "[nowhere]" in done.stderr
    shell("index", "[docs]")
    assert "Keys [old]" in shell("search", "old key").stdout


@pytest.mark.slow
def test_without_a_server_the_embedded_one_runs(program, open_folder, monkeypatch):
    for name in ("DATABASE_URL", "SEMLEX_READ_FROM"):
        program.environment.pop(name, None)
    program.environment["SEMLEX_DATA_DIR"] = str(open_folder)
    program("index", "docs")
    *hits, _ = program.objects("search", "banana")
    assert hits[0]["source_document"] == "fruit.txt"
    # The library finds the same data under the same setting.
    monkeypatch.setenv("SEMLEX_DATA_DIR", str(open_folder))
    with SyncRetriever(create=False) as retriever:
        assert retriever.status().documents == 2


def test_a_reranker_by_name(shell):
    shell("index", "docs", "--model", "none")
    *hits, summary = shell.objects("search", "yellow fruit", "--reranker", "term-overlap", "--top-k", "1")
    assert [hit["source_document"] for hit in hits] == ["fruit.txt"]
    assert hits[0]["rerank_score"] == 1.0
    assert summary["reranker_model"] == "term-overlap/1"
    done = shell("search", "fruit", "--reranker", "oracle:delphi", code=2)
    assert "the reranker must be" in done.stderr


@pytest.mark.slow
def test_a_dimension_that_the_model_does_not_have(shell):
    done = shell("index", "docs", "--model", "static", "--dimensions", "128", code=4)
    assert "dimensions=128 was configured" in done.stderr
    assert shell.objects("collections") == []
