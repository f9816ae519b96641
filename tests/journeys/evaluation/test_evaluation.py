"""Judged sets on disk, what `evaluate` and `tune` make of them on a real server, and their commands."""

import gzip
import json
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import PostgreSQLRetriever, SearchResult, SearchResults
from semlex.errors import ConfigurationError, ModelError, SemlexError
from semlex.evaluation import evaluate, metrics, tune
from semlex.evaluation.datasets import JudgedSet, read_corpus, read_judged_set, read_judgements, read_queries
from semlex.evaluation.evaluate import FUSIONS, each, ranked_scores, searchable, write_run
from semlex.evaluation.tune import GRID, search_parts
from semlex.search.fusion import DEFAULT_VECTOR_WEIGHT
from semlex.testing import HashEmbedder
from tests.support.clients.stopped_command import halted
from tests.support.folders import DATA, folder_with
from tests.support.retrievers import sync_opened
from tests.support.waiting import until, waiting_statements

# One query of the set has none of the collection's words.
NO_WORD = "no word of the query occurs in the collection"
WORKSHOP = DATA / "judged" / "workshop"


names = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=8)


@given(st.dictionaries(names, st.dictionaries(names, st.integers(-2, 4), min_size=1, max_size=4), max_size=4))
def test_judgements_of_both_forms_are_read(tmp_path_factory, judged):
    folder = tmp_path_factory.mktemp("qrels")
    rows = [(query, document, value) for query, found in judged.items() for document, value in found.items()]
    beir = "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t{v}\n" for q, d, v in rows)
    trec = "".join(f"{q} 0 {d} {v}\n" for q, d, v in rows)
    for name, text in {"beir.tsv": beir.encode(), "trec.txt.gz": gzip.compress(trec.encode())}.items():
        (folder / name).write_bytes(text)
        assert read_judgements(folder / name) == judged


def test_judged_sets_are_read_in_both_formats_and_keep_what_can_be_measured(tmp_path):
    lines = '{"_id": 7, "text": "one"}\n\n{"id": "b", "title": "two"}\n'
    folder_with(tmp_path, {"a.jsonl": lines, "b.tsv": "7\tone\nb\ttwo\n"})
    assert read_queries(tmp_path / "a.jsonl") == read_queries(tmp_path / "b.tsv") == {"7": "one", "b": "two"}
    qrels = "query-id\tcorpus-id\tscore\na\td1\t2\na\td2\t0\nb\td1\t0\nz\td1\t1\n"
    folder_with(tmp_path, {"queries.tsv": "a\tone\nb\ttwo\nc\tthree\n", "qrels/test.tsv": qrels})
    judged = read_judged_set(tmp_path)
    assert (judged.queries, judged.judgements) == ({"a": "one"}, {"a": {"d1": 2, "d2": 0}})
    assert judged.left_out == (
        "1 of 3 queries: not judged, left out",
        "1 of 3 queries: no relevant document, left out",
        "1 of 2 judged queries: no text, left out",
    )
    folder_with(tmp_path, {"corpus.jsonl": '{"_id": "a", "text": " "}\n'})
    with pytest.raises(ConfigurationError, match="holds no document with a text"):
        list(read_corpus(tmp_path))
    (tmp_path / "corpus.jsonl").unlink()
    lines = [{"_id": "a", "title": "T", "text": "x"}, {"docno": 2, "contents": "y"}, {"_id": "c", "text": " "}]
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    assert [(document.id, document.content) for document in read_corpus(tmp_path)] == [("a", "T\nx"), ("2", "y")]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "holds no queries"),
        ({"queries.tsv": "a\tone\n", "qrels.tsv": ""}, "judgements of 0 queries, 0 of them with a relevant document$"),
        ({"queries.tsv": "a\tone\n", "qrels.tsv": "a\td\t0\n"}, "of 1 queries, 0 of them with a relevant document$"),
        ({"queries.tsv": "a\tone\n", "qrels.tsv": "a\td\t0.5\n"}, "qrels.tsv, line 1"),
        ({"queries.tsv": "a\tone\n"}, "holds no judgements"),
        ({"queries.tsv": "a one\n", "qrels.tsv": "a\td\t1\n"}, "queries.tsv, line 1"),
        ({"queries.jsonl": '{"_id": "a"}\n', "qrels.tsv": "a\td\t1\n"}, "queries.jsonl, line 1"),
        ({"queries.jsonl": "[1]\n", "qrels.tsv": "a\td\t1\n"}, "expected a JSON object"),
        ({"queries.tsv": "a\tone\n", "qrels.tsv": "h\ti\tj\na\td\tyes\n"}, "qrels.tsv, line 2"),
        ({"queries.tsv": "a\tone\n", "qrels.tsv": "a\td\n"}, "line 1"),
        ({"queries.tsv": "a\tone\n", "qrels.tsv": "b\td\t1\n"}, "ids the same"),
    ],
)
def test_unusable_sets_are_refused(tmp_path, files, words):
    folder_with(tmp_path, files)
    with pytest.raises(ConfigurationError, match=words):
        read_judged_set(tmp_path)


def test_unreadable_files_are_refused(tmp_path):
    folder_with(tmp_path, {"queries.jsonl.gz": b"not gzip", "queries.tsv": b"a\t\xff\n"})
    for name in ("queries.jsonl.gz", "queries.tsv", "missing.tsv"):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            read_queries(tmp_path / name)
    for read, name, words in (
        (read_queries, "missing.tsv", r"missing\.tsv cannot be read: No such file"),
        (read_judged_set, "queries.tsv", r"queries\.tsv is not a folder"),
        (read_judged_set, "missing", "missing does not exist"),
        (lambda path: write_run(path, {"q": {"d": 1.0}}, "tag"), "missing/run.txt", "cannot be written"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            read(tmp_path / name)


def test_limited_is_a_fixed_choice():
    queries = {f"q{number}": "x" for number in range(50)}
    judged = JudgedSet(queries, {query: {"d": 1} for query in queries})
    ten = judged.limited(10)
    assert len(ten.queries) == 10
    assert list(ten.queries) == list(ten.judgements) == [query for query in queries if query in ten.queries]
    assert ten == judged.limited(10)
    assert judged.limited(None) is judged.limited(50) is judged
    with pytest.raises(ConfigurationError, match="at least 1; got 0"):
        judged.limited(0)


@given(st.lists(st.tuples(names, st.sampled_from([0.0, 0.25, 0.25 - 1e-9, 1.0, -3.5])), max_size=12))
def test_the_order_of_hits_survives_a_run_file(tmp_path_factory, rows):
    ordered = sorted(rows, key=lambda row: -row[1])
    hits = SearchResults([SearchResult("x", id=name, fused_score=score) for name, score in ordered])
    scores = ranked_scores(hits, "chunk")
    order = list(dict.fromkeys(name for name, _ in ordered))
    assert list(scores) == order == metrics.ranking(scores)
    path = tmp_path_factory.mktemp("run") / "run.txt"
    write_run(path, {"q 1": scores}, "some tag")
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    expected = [["q_1", "Q0", str(rank), "some_tag"] for rank in range(1, len(order) + 1)]
    assert [line[:2] + line[3:4] + line[5:] for line in lines] == expected
    assert metrics.ranking({line[2]: float(line[4]) for line in lines}) == order


def test_the_best_chunk_stands_for_its_document():
    rows = (("1", "a.md", 0, 0.9), ("2", "a.md", 9, 0.8), ("added", "anything", None, 0.7))
    names = ("id", "source_document", "char_start", "vector_score")
    hits = SearchResults([SearchResult("x", **dict(zip(names, row, strict=True))) for row in rows])
    assert list(ranked_scores(hits, "document")) == ["a.md", "added"]
    assert list(ranked_scores(hits, "chunk")) == ["1", "2", "added"]


@given(st.text(max_size=50).map(lambda text: text * 100))
def test_searchable_texts_are_within_the_limits(text):
    found, cut = searchable(text)
    assert len(found.encode()) <= 4096
    assert "\0" not in found
    assert cut == (len(text.replace("\0", " ").strip().encode(errors="replace")) > 4096)


async def test_every_query_is_asked_once_and_failures_come_through():
    seen = []

    async def note(query):
        seen.append(query)

    queries = {str(number): "" for number in range(20)}
    await each(queries, note)
    assert seen == list(queries)

    async def fail(query):
        if query == "3":
            raise SemlexError("three")

    with pytest.raises(SemlexError, match="three"):
        await each(queries, fail)


@pytest.mark.slow
async def test_report_equals_searches_and_measures(database_url):
    judged = read_judged_set(WORKSHOP)
    done = []
    async with PostgreSQLRetriever(database_url, HashEmbedder(), "term-overlap", collection="workshop") as retriever:
        await retriever.add_documents(list(read_corpus(WORKSHOP)))
        asked = {"k": 5, "progress": lambda step: done.append(step.done)}
        report = await evaluate(retriever, judged.queries, judged.judgements, **asked)
        assert set(report.systems) == {"vector", "keyword", *FUSIONS, "reranked"}
        assert report.judged == "chunk"
        words = set(report.systems) - {"vector"}
        assert sorted(report.warnings) == sorted(f"1 of 26 queries: {system}: {NO_WORD}" for system in words)
        assert done[-1] == len(done) == len(judged.queries) == len(report.queries)
        for name, options in (
            ("vector", {"mode": "vector", "rerank": False}),
            ("keyword", {"mode": "keyword", "rerank": False}),
            ("rrf", {"mode": "hybrid", "fusion": "rrf", "rerank": False}),
            ("reranked", {"rerank": True}),
        ):
            run = {
                query: {hit.id: -float(hit.rank) for hit in await retriever.search(text, 5, **options)}
                for query, text in judged.queries.items()
            }
            system = report.systems[name]
            assert system.values["ndcg@5"].tolist() == metrics.ndcg(run, judged.judgements, 5).tolist()
            assert system.values["success@3"].tolist() == metrics.success(run, judged.judgements, 3).tolist()
            assert ("recall@100" in system.values) == (name != "reranked")
        means = {name: report.systems[name].mean("ndcg@5") for name in ("vector", "keyword")}
        assert report.baseline == max(means, key=lambda name: means[name] or 0.0)
        assert report.systems[report.baseline].p is None
        assert all(system.p is not None for name, system in report.systems.items() if name != report.baseline)


@pytest.mark.slow
async def test_files_are_judged_by_their_source(database_url, tmp_path):
    for document in read_corpus(WORKSHOP):
        (tmp_path / f"{document.id}.md").write_text(f"# {document.id}\n\n{document.content}\n" * 2, encoding="utf-8")
    judged = read_judged_set(WORKSHOP)
    by_id = judged.judgements
    by_file = {query: {f"{name}.md": value for name, value in by_id[query].items()} for query in by_id}
    async with PostgreSQLRetriever(database_url, "none", collection="files") as retriever:
        await retriever.index(tmp_path, chunk_tokens=30, overlap_tokens=0)
        assert await retriever.count() > 41
        report = await evaluate(retriever, judged.queries, by_file)
        assert report.judged == "document"
        assert set(report.systems) == {"keyword"}
        assert (report.systems["keyword"].mean("recall@100") or 0.0) > 0.8
        assert not any("not in the collection" in warning for warning in report.warnings)
        strangers = await evaluate(retriever, judged.queries, by_id)
        assert "no search found a judged document" in strangers.warnings[-1]
        query, found = next(iter(by_file.items()))
        right = next(iter(found))
        with_typo = by_file | {query: found | {right.replace(".md", "x.md"): 1, "other": 1}}
        mistyped = await evaluate(retriever, judged.queries, with_typo)
        wrong = right.replace(".md", "x.md")
        note = f"2 judged documents are not in the collection: {wrong} (did you mean {right}?), other"
        assert mistyped.warnings[0] == note
    with sync_opened(database_url, "none", collection="files") as synchronous:
        again = await evaluate(synchronous, judged.queries, by_file)
        assert again.systems["keyword"].run == report.systems["keyword"].run


@pytest.mark.slow
@pytest.mark.parametrize("fusion", [name for name in ("score", "linear") if name in FUSIONS])
async def test_tuning_fuses_again_what_a_search_fuses(database_url, fusion):
    judged = read_judged_set(WORKSHOP)
    async with PostgreSQLRetriever(database_url, HashEmbedder(), "none", collection="tuned") as retriever:
        await retriever.add_documents(list(read_corpus(WORKSHOP)))
        for text in list(judged.queries.values())[:8]:
            # More than there are, so that no candidate is cut off.
            parts = await search_parts(retriever, text, fusion, 50, "chunk")
            for weight in (0.0, 0.35, 1.0):
                weights = {"vector": weight, "keyword": 1 - weight}
                hits = await retriever.search(text, 50, fusion=fusion, weights=weights, tuning={"candidates": 50})
                fused = dict(zip(parts.ids, (1 - weight) * parts.keyword + weight * parts.vector, strict=True))
                assert {hit.id: hit.fused_score for hit in hits} == pytest.approx(fused, abs=1e-9)
        report = await tune(retriever, judged.queries, judged.judgements, fusion=fusion)
        assert set(report.curve) == set(GRID.tolist())
        assert report.keep_default
        assert report.suggested == report.default == DEFAULT_VECTOR_WEIGHT
        assert report.warnings == [f"1 of 26 queries: {NO_WORD}"]
        measured = await evaluate(retriever, judged.queries, judged.judgements, fusions=[fusion])
        assert report.better_leg == measured.baseline
        assert report.leg_ndcg == pytest.approx(measured.systems[measured.baseline].mean("ndcg@10"))


class CompletedSearch:
    """Answers as a search with score fusion does: both scores of every candidate, best first."""

    def __init__(self, keyword, vector_part, *, legs=2):
        self.keyword, self.vector_part, self.legs = keyword, vector_part, legs

    async def search(self, text, top_k, **options):
        assert options["fusion"] == "score"
        assert options["tuning"] == {"candidates": top_k}
        weight, hits = options["weights"]["vector"], []
        greatest = max(self.keyword.values(), default=1.0)
        for name, part in self.vector_part.items():
            words, fused = self.keyword.get(name, 0.0), {}
            if self.legs > 1:
                parts = (1 - weight) * words / greatest, weight * part
                names = ("keyword_contribution", "vector_contribution", "fused_score")
                fused = dict(zip(names, (*parts, sum(parts)), strict=True))
            ranks = {"keyword_rank": 1 if words else None, "keyword_score": words or None, "vector_rank": 1}
            hits.append(SearchResult("x", id=name, vector_score=part / 2, **ranks, **fused))
        ordered = sorted(hits, key=lambda hit: -(hit.fused_score or 0.0))[:top_k]
        if self.legs > 1:
            return SearchResults(ordered, fusion="score")
        return SearchResults(ordered, warnings=["the keyword search did not answer: why"])


@given(st.dictionaries(names, st.tuples(st.floats(0, 30), st.floats(-1, 1)), max_size=10))
async def test_parts_of_a_completed_search(candidates):
    keyword = {name: scores[0] for name, scores in candidates.items() if scores[0] > 1e-6}
    vector_part = {name: scores[1] for name, scores in candidates.items()}
    parts = await search_parts(CompletedSearch(keyword, vector_part), "x", "score", 50, "chunk")
    assert sorted(parts.ids) == sorted(candidates)
    # Nothing is subtracted, and the weight of the search is a power of two: exact but for the least of floats.
    exactly = {"rel": 0.0, "abs": 1e-300}
    assert parts.vector.tolist() == pytest.approx([vector_part[name] for name in parts.ids], **exactly)
    greatest = max(keyword.values(), default=1.0)
    assert parts.keyword.tolist() == pytest.approx([keyword.get(name, 0.0) / greatest for name in parts.ids], **exactly)
    assert np.isnan(parts.ranks[0]).tolist() == [name not in keyword for name in parts.ids]


async def test_parts_where_one_leg_answered_alone():
    parts = await search_parts(CompletedSearch({}, {"a": 0.8, "b": 0.2}, legs=1), "x", "score", 50, "chunk")
    assert dict(zip(parts.ids, parts.vector.tolist(), strict=True)) == {"a": 0.4, "b": 0.1}
    assert parts.keyword.tolist() == [0.0, 0.0]
    assert parts.warnings == ["the keyword search did not answer: why"]


class HastyEmbedder(HashEmbedder):
    """Reads only the beginning of some texts, says so, and fails on one query."""

    documents_cut = 7

    def embed_query(self, text):
        if text == "key":
            raise ModelError("no")
        return super().embed_query(text)


async def test_reports_tell_what_went_wrong(database_url):
    queries, judgements = {"q": "key", "r": "vault"}, {"q": {"d": 1}, "r": {"e": 1}}
    cut = "7 texts exceed the model's limit: only their beginning was embedded"
    async with PostgreSQLRetriever(database_url, HastyEmbedder(), "none", collection="hasty") as retriever:
        await retriever.add_texts(["a key", "a vault"], ids=["d", "e"])
        report = await tune(retriever, queries, judgements)
        assert len(report.warnings) == 2
        assert report.warnings[0].startswith("1 of 2 queries: ")
        assert report.warnings[1] == cut
        measured = await evaluate(retriever, {"r": "vault"}, judgements)
        assert measured.warnings == [cut]


async def test_what_cannot_be_measured_is_refused(database_url):
    queries, judgements = {"q": "key"}, {"q": {"d": 1}}
    both = queries | {"r": "key"}, judgements | {"r": {"d": 1}}
    async with PostgreSQLRetriever(database_url, "none", "none", collection="refused") as retriever:
        await retriever.add_texts(["a key"], ids=["d"])
        for work, given_set, options, words in (
            (tune, both, {}, "needs vector search"),
            (tune, (queries, judgements), {}, "2 judged queries"),
            (evaluate, (queries, {"other": {"d": 1}}), {}, "no query is judged"),
            (evaluate, both, {"k": 0}, "k must be"),
            (tune, both, {"k": 0}, "k must be"),
            (evaluate, (queries, judgements), {"rerank": True}, "reranker"),
        ):
            with pytest.raises(ConfigurationError, match=words):
                await work(retriever, *given_set, **options)
        long = await evaluate(retriever, {"q": "key " * 2_000}, judgements)
        assert any("longer than a search accepts" in warning for warning in long.warnings)


JUDGED = {"queries.tsv": "a\tone\n", "qrels.tsv": "a\td\t1\n"}


@pytest.fixture
def semlex(shell):
    return lambda *arguments, code=0: shell(*map(str, arguments), code=code)


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


def test_refusals_leave_nothing(semlex, tmp_path):
    for arguments, code, words in (
        (("nowhere",), 2, "nowhere does not exist"),
        ((WORKSHOP, "--k", 0), 2, "'--k' / '-k': must be a whole number between 1 and 1,000; got '0'"),
        ((WORKSHOP, "--k", 1001), 2, "'--k' / '-k': must be a whole number between 1 and 1,000; got '1001'"),
        ((WORKSHOP, "--limit-queries", "few"), 2, "'--limit-queries': must be a whole number of at least 1; got 'few'"),
        (("tune", WORKSHOP, "--folds", 1), 2, "'--folds': must be a whole number of at least 2; got '1'"),
        ((WORKSHOP, "--run", "nowhere/run.txt"), 2, "folder nowhere does not exist"),
        (("--collection", "x"), 2, "--queries and --qrels"),
        ((WORKSHOP, "--fusion", "magic"), 2, "--fusion must be one of"),
        ((WORKSHOP, "--collection", "missing"), 6, "collection 'missing' does not exist"),
        (("tune", WORKSHOP, "--model", "none"), 2, "both searches"),
    ):
        assert words in semlex("eval", *arguments, code=code).stderr
    # The corpus is read before anything is opened.
    folder_with(tmp_path, JUDGED)
    for corpus, words in (
        (None, "holds no corpus"),
        ("", "no document with a text"),
        ('{"_id": "d", "text": "one"}\n{\n', "line 2"),
    ):
        folder_with(tmp_path, {} if corpus is None else {"corpus.jsonl": corpus})
        refused = semlex("eval", tmp_path, "--database", "postgresql://127.0.0.1:1/none", "--keep", code=2).stderr
        assert words in refused
        assert "kept" not in refused
    assert semlex("collections", "--json").stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("doing", "mode", "kept"), [("add documents", "SHARE", False), ("search", "ACCESS EXCLUSIVE", True)]
)
def test_an_interrupted_run_leaves_what_is_whole(shell, doing, mode, *, kept):
    """While texts are stored nothing is; while queries are asked, the collection."""
    folder_with(shell.folder, {**JUDGED, "corpus.jsonl": '{"_id": "d", "text": "one"}\n'})
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


@pytest.mark.slow
def test_eval_prints_a_table_tune_keeps_the_default_with_few_queries_and_nothing_is_left(semlex, tmp_path):
    done = semlex("eval", WORKSHOP, "--model", "static", "--reranker", "term-overlap", "--rerank", "--run", "runs.txt")
    for words in ("ndcg@10", "recall@100", "vector", "keyword", "rrf", "reranked", "baseline", "*"):
        assert words in done.stdout
    assert "26 queries" in done.stderr
    tuning = ("eval", "tune", WORKSHOP, "--model", "static")
    done = semlex(*tuning).stdout
    assert "keep the default weight" in done
    assert "26 judged queries are too few" in done
    report = json.loads(semlex(*tuning, "--json").stdout)
    assert (report["keep_default"], report["suggested"], len(report["fold_weights"])) == (True, report["default"], 5)
    assert semlex("collections", "--json").stdout == ""
    files = {path.name for path in tmp_path.glob("runs.*")}
    assert files == {f"runs.{name}.txt" for name in ("vector", "keyword", *FUSIONS, "reranked")}
    assert len((tmp_path / "runs.keyword.txt").read_text(encoding="utf-8").splitlines()[0].split()) == 6
    for command, option in (("", "tune"), ("run", "--limit-queries"), ("tune", "--folds")):
        assert option in semlex("eval", *command.split(), "--help").stdout
