"""The search commands and their options on one small collection: what they accept, print and refuse."""

import pytest

from tests.support.chat_servers import chat_server
from tests.support.model_servers import KEY
from tests.support.shell import Shell, two_documents

pytestmark = pytest.mark.slow  # the fixture indexes twice


@pytest.fixture(scope="module")
def shell(new_database, tmp_path_factory):
    """Two documents in the collections ``handbook``, which has no vectors, and ``vectors``; tests only read them."""
    shell = Shell(new_database(), tmp_path_factory.mktemp("shell"))
    two_documents(shell.folder)
    for collection, model in (("handbook", "none"), ("vectors", "static")):
        shell("index", "docs", "-c", collection, "--model", model)
    shell.environment |= {"SEMLEX_COLLECTION": "handbook", "SEMLEX_CHAT_API_KEY": KEY}
    return shell


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["search"], "question"),
        (["search", "keys", "--after", "x"], "question"),
        (["search", "keys", "--queries", "docs/keys.md"], "question"),
        (["search", "--after", "x"], "cursor"),
        (["search", "--after", "x", "--mode", "vector"], "--mode"),
        (["search", "--after", "x", "--group", "2"], "--group"),
        (["search", "--after", "x", "--boost", "2 exists @source_document"], "--boost"),
        (["search", "key", "--boost", "exists @source_document"], "--boost takes a factor"),
        (["search", "key", "--boost", "2 @urri == 'x'"], "column 1"),
        (["search", "keys", "--group", "0"], "group_size"),
        (["search", "--queries", "missing.txt"], "missing.txt"),
        (["search", "keys", "--min-similarity", "high"], "must be a number"),
        (["search", "keys", "--min-rerank", "0.5"], "needs a reranker"),
        (["search", "keys", "--route", "best"], "must be rules or chat"),
        (["eval", "docs", "--route", "best"], "must be rules or chat"),
        (["search", "keys", "--route", "chat"], "--chat-model"),
        (["fields", "facets", "@sourse"], "@source"),
        (["context", "keys", "--order", "rank"], "order"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_what_is_refused(shell, arguments, told):
    assert told in shell(*arguments, code=2).stderr


def test_boosts_groups_filters_and_thresholds(shell):
    factors = ("--boost", '0.25 @source_document == "keys.md"', "--boost", "2 exists @source_document")
    shown = shell("search", "-v", "key fruit", *factors, "-c", "vectors").stdout
    assert "times 0.5" in shown
    assert "times 2" in shown
    first, *_ = shell.objects("search", "key fruit", "--boost", '9 @source_document == "fruit.txt"')
    assert (first["source_document"], first["boost"]) == ("fruit.txt", 9.0)
    *hits, _ = shell.objects("search", "keys vault banana", "--group", "1")
    assert [(hit["document"], hit["source_document"]) for hit in hits] == [(1, "keys.md"), (2, "fruit.txt")]
    shown = shell("search", "keys vault banana", "--group", "2").stdout
    assert shown.splitlines()[0] == "keys.md"
    assert shown.count("keys.md") == 2  # the document and its chunk
    # Filters all hold.
    every, fruit = ("--filter", "not exists draft"), ("--filter", 'not @source_document == "keys.md"')
    for filters in (every + fruit, fruit + every):
        *hits, _ = shell.objects("search", "keys banana", *filters)
        assert [hit["source_document"] for hit in hits] == ["fruit.txt"]
    [near, *_] = shell.objects("search", "keys", "-c", "vectors", "--min-similarity", "0.1")
    assert near["vector_score"] > 0.1
    done = shell("search", "keys", "-c", "vectors", "--min-similarity", "0.99")
    assert "no candidate reaches min_similarity" in done.stdout + done.stderr


def test_pages(shell):
    whole = shell.objects("search", "keys vault rotate banana")
    *found, summary = shell.objects("search", "keys vault rotate banana", "-k", "1", "--max-results", "50")
    while summary["next_cursor"]:
        *hits, summary = shell.objects("search", "--after", summary["next_cursor"])
        found += hits
    assert [hit["id"] for hit in found] == [hit["id"] for hit in whole[:-1]]
    search = ("search", "keys banana", "-k", "1", "--max-results", "2")
    assert "next page: semlex search --after " in shell(*search).stderr
    *_, summary = shell.objects(*search, "--filter", "year == 2024")
    assert summary["next_cursor"] is None
    *_, summary = shell.objects(*search, "--filter", "not exists year")
    page = ("search", "--after", summary["next_cursor"], "--filter")
    assert shell.objects(*page, "not exists year")[:-1] == shell.objects(*page[:-1])[:-1] != []
    assert "filters must be conditions of the search" in shell(*page, "tenant == 3", code=2).stderr


def test_many_searches(shell):
    questions = shell.folder / "questions.txt"
    questions.write_text("rotate keys\n\n  banana  \nnothing like it\n", encoding="utf-8")
    lines = shell.objects("search", "--queries", "questions.txt", "-k", "2")
    for number, question in enumerate(("rotate keys", "banana", "nothing like it"), 1):
        own = [line for line in lines if line["query"] == number]
        single = shell.objects("search", question, "-k", "2")
        assert own[-1]["question"] == question
        for line, expected in zip(own, single, strict=True):
            assert {**expected, "query": number, "question": question} == line or "type" in line
            assert line["warnings"] == expected["warnings"] if "type" in line else True
    shown = shell("search", "--queries", "questions.txt").stdout
    assert shown.index("rotate keys") < shown.index("banana") < shown.index("nothing found")
    for content, told in ((b"\xff\n", "UTF-8"), (b"\n", "no question in questions.txt")):
        questions.write_bytes(content)
        assert told in shell("search", "--queries", "questions.txt", code=2).stderr


@pytest.mark.pg16
def test_facets(shell):
    [shown] = shell.objects("fields", "facets", "@source", "@source_document")
    assert shown["facets"]["@source"]["values"] == [{"value": "docs", "count": shown["chunks"]}]
    options = ("--query", "banana", "--mode", "keyword", "--filter", '@source == "docs"')
    [shown] = shell.objects("fields", "facets", "@source_document", *options)
    assert shown["facets"]["@source_document"]["values"] == [{"value": "fruit.txt", "count": 1}]
    assert shown["of"] == "candidates"
    done = shell("fields", "facets", "@source_document", "missing", "--limit", "1")
    assert done.stdout.splitlines()[0] == "@source_document"
    assert "and 1 more value" in done.stdout
    assert "no values" in done.stdout
    assert "that pass the filter" in done.stderr


def test_contexts(shell):
    done = shell("context", "when", "are", "keys", "rotated", "--tokens", "200")
    lines = done.stdout.splitlines()
    assert (lines[2], lines[4]) == ("[1] keys.md:1 — Keys", "# Keys")
    assert lines[3].replace("<", ">") == lines[-1]
    assert "1 passage" in done.stderr
    [made] = shell.objects("context", "when are keys rotated", "--tokens", "200")
    [source] = made["sources"]
    assert (source["place"], source["location"]) == ("line 1", "keys.md:1")
    assert source["text"] in made["text"]
    assert made["mark"] in made["text"]
    assert made["tokens"] <= 200
    assert len(source["hits"]) == made["search"]["hits"] >= 1
    done = shell("context", "keys", "--tokens", "5")
    assert done.stdout == ""
    assert "raise tokens" in done.stderr


def test_routes(shell):
    for command in ("search", "context", "ask"):
        done = shell(command, "why rotate keys", "--route", "rules")
        assert "route: analytical, by rules: it contains 'why'" in done.stderr, command
    [*_, summary] = shell.objects("search", "why rotate keys", "--route", "rules")
    assert summary["route"] == {"kind": "analytical", "by": "rules", "reason": "it contains 'why'", "warning": None}
    assert shell.objects("ask", "keys", "--route", "rules")[0]["route"]["kind"] == "exploratory"
    assert shell.objects("context", "keys", "--route", "rules")[0]["search"]["route"]["kind"] == "exploratory"
    with chat_server(lambda _: '{"kind": "factual", "reason": "\\u001b[2Jno"}') as double:
        done = shell("search", "keys", "--route", "chat", "--chat-model", f"{double.url}/v1#small")
    assert "route: factual, by the language model:" in done.stderr
    assert "\x1b[2J" not in done.stderr
