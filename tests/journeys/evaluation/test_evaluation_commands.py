"""`semlex eval` and `semlex eval tune` as a user calls them."""

from __future__ import annotations

import json
import signal

import pytest

from semlex.evaluation.evaluate import FUSIONS
from tests.support.clients.stopped_command import halted
from tests.support.folders import DATA
from tests.support.waiting import until, waiting_statements

WORKSHOP = DATA / "judged" / "workshop"
JUDGED = {"queries.tsv": "a\tone\n", "qrels.tsv": "a\td\t1\n"}


@pytest.fixture
def semlex(shell):
    return lambda *arguments, code=0: shell(*map(str, arguments), code=code)


@pytest.mark.slow
def test_eval_prints_a_table_and_leaves_nothing(semlex, tmp_path):
    done = semlex("eval", WORKSHOP, "--model", "static", "--reranker", "term-overlap", "--rerank", "--run", "runs.txt")
    for words in ("ndcg@10", "recall@100", "vector", "keyword", "rrf", "reranked", "baseline", "*"):
        assert words in done.stdout
    assert "26 queries" in done.stderr
    assert semlex("collections", "--json").stdout == ""
    files = {path.name for path in tmp_path.glob("runs.*")}
    assert files == {f"runs.{name}.txt" for name in ("vector", "keyword", *FUSIONS, "reranked")}
    assert len((tmp_path / "runs.keyword.txt").read_text(encoding="utf-8").splitlines()[0].split()) == 6


@pytest.mark.slow
def test_eval_of_an_existing_collection_in_json(semlex, shell):
    shell.environment["SEMLEX_KEYWORD"] = "tsvector"
    kept = semlex("eval", WORKSHOP, "--model", "none", "--keep", "--limit-queries", 3).stderr
    name = kept.partition("--collection ")[2].split()[0]
    files = ("--queries", WORKSHOP / "queries.jsonl", "--qrels", WORKSHOP / "qrels.tsv")
    done = semlex("eval", "--collection", name, *files, "--k", 5, "--json")
    assert done.stderr == ""
    *queries, summary = map(json.loads, done.stdout.splitlines())
    assert (len(queries), summary["queries"], summary["baseline"]) == (26, 26, "keyword")
    values = [query["systems"]["keyword"]["ndcg@5"] for query in queries]
    assert summary["systems"]["keyword"]["ndcg@5"] == pytest.approx(sum(values) / 26)
    (listed,) = map(json.loads, semlex("collections", "--json").stdout.splitlines())
    assert (listed["name"], listed["keyword"]) == (name, "tsvector")


@pytest.mark.slow
def test_tune_keeps_the_default_with_few_queries(semlex):
    done = semlex("eval", "tune", WORKSHOP, "--model", "static")
    assert "keep the default weight" in done.stdout
    assert "26 judged queries are too few" in done.stdout
    report = json.loads(semlex("eval", "tune", WORKSHOP, "--model", "static", "--json").stdout)
    assert (report["keep_default"], report["suggested"], len(report["fold_weights"])) == (True, report["default"], 5)
    assert semlex("collections", "--json").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("nowhere",), 2, "nowhere does not exist"),
        ((WORKSHOP, "--k", 0), 2, "'--k' / '-k': must be between 1 and 1,000; got 0"),
        ((WORKSHOP, "--k", 1001), 2, "'--k' / '-k': must be between 1 and 1,000; got 1,001"),
        ((WORKSHOP, "--limit-queries", "few"), 2, "'--limit-queries': must be a whole number; got 'few'"),
        (("tune", WORKSHOP, "--folds", 1), 2, "'--folds': must be at least 2; got 1"),
        ((WORKSHOP, "--run", "nowhere/run.txt"), 2, "folder nowhere does not exist"),
        (("--collection", "x"), 2, "--queries and --qrels"),
        ((WORKSHOP, "--fusion", "magic"), 2, "--fusion must be one of"),
        ((WORKSHOP, "--collection", "missing"), 6, "collection 'missing' does not exist"),
        (("tune", WORKSHOP, "--model", "none"), 2, "both searches"),
    ],
)
def test_refusals_leave_nothing(semlex, arguments, code, words):
    assert words in semlex("eval", *arguments, code=code).stderr
    assert semlex("collections", "--json").stdout == ""


@pytest.mark.parametrize(
    ("corpus", "words"),
    [(None, "holds no corpus"), ("", "no document with a text"), ('{"_id": "d", "text": "one"}\n{\n', "line 2")],
)
def test_the_corpus_is_read_before_anything_is_opened(semlex, tmp_path, corpus, words):
    for name, text in {**JUDGED, "corpus.jsonl": corpus}.items():
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
    done = semlex("eval", tmp_path, "--database", "postgresql://127.0.0.1:1/none", "--keep", code=2)
    assert words in done.stderr
    assert "kept" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("doing", "mode", "kept"), [("add documents", "SHARE", False), ("search", "ACCESS EXCLUSIVE", True)]
)
def test_an_interrupted_run_leaves_what_is_whole(shell, doing, mode, *, kept):
    """While texts are stored nothing is; while queries are asked, the collection."""
    for name, text in {**JUDGED, "corpus.jsonl": '{"_id": "d", "text": "one"}\n'}.items():
        (shell.folder / name).write_text(text, encoding="utf-8")
    command = ("eval", ".", "--model", "none", "--keep")
    with halted(shell, command, (doing, "before", 1), "eval%chunk", mode=mode) as (program, holder):
        before = waiting_statements(holder)
        program.send(signal.SIGINT)
        until(lambda: waiting_statements(holder) != before)
        holder.rollback()
        assert program.ended() == 130
        assert "Traceback" not in program.said
        assert ("kept" in program.said) == kept
    assert bool(shell.objects("collections")) == kept


def test_help(semlex):
    assert "tune" in semlex("eval", "--help").stdout
    assert "--limit-queries" in semlex("eval", "run", "--help").stdout
    assert "--folds" in semlex("eval", "tune", "--help").stdout
