"""Calibrations on a real server: learned, stored with the vectors, applied to hits, dumped, and void with the model."""

import asyncio
import json
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from semlex import Client, Document, PostgreSQLRetriever, SyncClient
from semlex.errors import ConfigurationError, PrivilegeError
from semlex.evaluation import calibrate, read_judged_set
from semlex.retriever.embeddings import Embeddings
from semlex.retriever.handle import read_curve, write_curve
from semlex.testing import HashEmbedder
from tests.support.databases import execute
from tests.support.folders import folder_with
from tests.support.retrievers import sync_opened
from tests.support.two_models import NAME, new_model, old_model, opened

pytestmark = pytest.mark.slow  # most of them

QUERIES = 36
# The documents of the first nine queries.
RELEVANT = {f"{kind}{number}" for number in range(9) for kind in ("about", "beside")}


def documents():
    """Of each subject one document that speaks of it, and one that only mentions it."""
    return [
        Document(text, id=f"{kind}{number}")
        for number in range(QUERIES)
        for kind, text in (
            ("about", f"subject{number} part{number} of the whole"),
            ("beside", f"subject{number} among many other things that have been written here and there"),
        )
    ]


def judged():
    queries = {f"q{number}": f"subject{number} part{number}" for number in range(QUERIES)}
    return queries, {f"q{number}": {f"about{number}": 1, f"beside{number}": 0} for number in range(QUERIES)}


@pytest.fixture(scope="module")
def url(new_database):
    made = new_database()
    with sync_opened(made, old_model(), collection=NAME) as retriever:
        retriever.add_documents(documents())
    return made


@pytest.fixture
def retriever(url):
    with sync_opened(url, old_model(), collection=NAME) as retriever:
        yield retriever
        retriever.embeddings.store_calibration(None)


async def learned(url, **options):
    async with opened(url) as retriever:
        return await calibrate(retriever, *judged(), **options)


@pytest.fixture(scope="module")
def curve(url):
    return asyncio.run(learned(url)).curve


async def test_what_is_learned(url, curve):
    told = []
    report = await learned(url, progress=lambda progress: told.append(progress.done))
    assert (curve.queries, curve.pairs, curve.relevant, curve.depth, curve.mode) == (36, 360, 36, 10, "hybrid")
    assert report.unjudged == 360 - 72
    assert curve.slope > 0
    assert curve.figures.brier < curve.figures.brier_base
    assert curve.figures.auc == pytest.approx(curve.figures.auc_cosine)
    assert sorted(told) == list(range(1, QUERIES + 1))
    assert replace(report.curve, learned_at=curve.learned_at) == curve


def test_hits_have_the_confidence_of_a_calibration_until_it_is_dropped(url, curve, retriever):
    question = "subject3 part3"
    assert {hit.confidence for hit in retriever.search(question)} == {None}
    assert retriever.embeddings.calibration is None
    retriever.embeddings.store_calibration(curve)
    assert retriever.embeddings.calibration == curve
    with sync_opened(url, old_model(), collection=NAME) as other:
        assert other.embeddings.calibration == curve
    [figures] = retriever.embeddings.list()
    assert figures.calibration == retriever.status().calibration == curve.to_dict()
    for options in ({}, {"mode": "vector"}, {"fusion": "rrf"}, {"group_by": "document"}, {"explain": True}):
        found = retriever.search(question, 10, **options)
        assert len(found) == 10
        expected = [None if hit.vector_score is None else curve.probability(hit.vector_score) for hit in found]
        assert [hit.confidence for hit in found] == expected
        assert any(expected)
    first, second = retriever.search(question, 2)
    assert first.confidence > second.confidence
    assert {hit.confidence for hit in retriever.search(question, mode="keyword")} == {None}
    explained = retriever.search(question, explain=True)
    assert [hit.confidence for hit in explained.explanation.hits] == [hit.confidence for hit in explained]
    assert f"confidence {explained[0].confidence:.2f}" in str(explained.explanation)
    assert f"confidence={first.confidence:.4g}" in repr(first)
    # Many searches equal single ones, and pages equal the whole.
    queries = list(judged()[0].values())
    assert [[hit.confidence for hit in found] for found in retriever.search_many(queries, 3)] == [
        [hit.confidence for hit in retriever.search(query, 3)] for query in queries
    ]
    page, paged = retriever.search(queries[0], 3, max_results=9), []
    while True:
        paged += [hit.confidence for hit in page]
        if page.next_cursor is None:
            break
        page = retriever.search_page(page.next_cursor)
    assert paged == pytest.approx([hit.confidence for hit in retriever.search(queries[0], 9)])
    retriever.embeddings.store_calibration(None)
    assert retriever.embeddings.calibration is retriever.status().calibration is None
    assert {hit.confidence for hit in retriever.search("subject3")} == {None}


def test_a_dump_carries_the_calibration_and_one_of_an_older_version_has_none(url, curve, retriever, tmp_path):
    for number, stored in enumerate((curve, None)):
        retriever.embeddings.store_calibration(stored)
        retriever.tables.dump(tmp_path / str(number))
        with SyncClient(url, old_model(), use_reranking=False) as client:
            client.restore(tmp_path / str(number), f"copy_{number}")
            restored = client.collection(f"copy_{number}", create=False)
            confidences = [hit.confidence for hit in restored.search("subject3 part3", 10)]
            assert restored.embeddings.calibration == stored
            assert [confidence is None for confidence in confidences] == [stored is None] * 10
            client.drop(f"copy_{number}")
    path = tmp_path / "1" / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    assert "calibration" not in manifest["embedding"]  # where older versions would stumble
    del manifest["calibration"]
    path.write_text(json.dumps(manifest), encoding="utf-8")
    with SyncClient(url, old_model(), use_reranking=False) as client:
        assert client.restore(tmp_path / "1", "older").vectors == 2 * QUERIES
        client.drop("older")


async def test_another_model_has_none(database_url):
    async with opened(database_url) as retriever:
        await retriever.add_documents(documents())
        curve = (await calibrate(retriever, *judged())).curve
        await retriever.embeddings.store_calibration(curve)
        report = await retriever.embeddings.change(new_model())
        assert any("the calibration of version 1 stays with its vectors" in warning for warning in report.warnings)
        # Who holds the old model goes on with its vectors and what is known of them.
        assert (await retriever.search("subject3"))[0].confidence is not None
    async with opened(database_url, new_model()) as retriever:
        found = await retriever.search("subject3")
        assert {hit.confidence for hit in found} == {None}
        assert (found.warnings, retriever.embeddings.calibration) == ([], None)
        with pytest.raises(ConfigurationError, match=r"learned with semlex\.testing/hash"):
            await retriever.embeddings.store_calibration(curve)
        assert [one.calibration is None for one in await retriever.embeddings.list()] == [False, True]
        await retriever.embeddings.roll_back(old_model())
    async with opened(database_url) as retriever:
        assert retriever.embeddings.calibration == curve


async def test_a_file_stands_in_for_the_database(url, curve, retriever, tmp_path):
    file = tmp_path / "curve.json"
    retriever.embeddings.store_calibration(replace(curve, slope=0.0))
    write_curve(file, curve)
    async with opened(url, calibration=file) as named, Client(url, old_model(), use_reranking=False) as client:
        assert named.embeddings.calibration == curve
        for collection in (named, client.collection(NAME, create=False, calibration=str(file))):
            hit = (await collection.search("subject3 part3"))[0]
            assert hit.confidence == curve.probability(hit.vector_score or 0.0)
    write_curve(file, replace(curve, identity_key="another/model"))
    async with opened(url, calibration=file) as named:
        with pytest.raises(ConfigurationError, match=r"calibration that was given .* was learned with"):
            await named.search("subject3")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        await opened(url, calibration=tmp_path / "none.json").initialize()


def test_what_cannot_be_read_is_told_and_the_hits_stand(url, curve, retriever):
    retriever.embeddings.store_calibration(curve)
    execute(url, "UPDATE semlex.embedding_version SET calibration = calibration || '{\"format\": 99}'")
    with sync_opened(url, old_model(), collection=NAME) as other:
        found = other.search("subject3 part3", 10)
    assert [hit.confidence for hit in found] == [None] * 10
    assert "hits have no confidence" in found.warnings[0]
    assert "update semlex" in found.warnings[0]


@pytest.mark.parametrize(
    ("queries", "judgements", "told"),
    [
        (29, lambda own: own, "29 judged queries are too few"),
        (36, lambda _: {"elsewhere": 1}, "0 of 360 hits are judged relevant, too few .* needs 10: are the judged ids"),
        (36, lambda own: own if own.keys() < RELEVANT else {"x": 0}, "9 of 360 hits .* judge more queries"),
        (36, lambda _: {one.id or "": 1 for one in documents()}, "0 of 360 hits are not relevant, .* search deeper"),
    ],
)
async def test_too_few_judgements_are_refused(url, queries, judgements, told):
    texts, own = judged()
    asked = dict(list(texts.items())[:queries])
    async with opened(url) as retriever:
        with pytest.raises(ConfigurationError, match=told):
            await calibrate(retriever, asked, {query: judgements(own[query]) for query in texts})


async def test_without_cosines_there_is_nothing_to_learn(database_url, url):
    async with PostgreSQLRetriever(url, "none", collection=NAME) as words:
        with pytest.raises(ConfigurationError, match="has no vectors or their embedding model is not open"):
            await calibrate(words, *judged())
    async with PostgreSQLRetriever(
        database_url, HashEmbedder(8), collection="far", distance="l2", use_reranking=False
    ) as far:
        with pytest.raises(ConfigurationError, match="has no vectors"):
            await far.embeddings.store_calibration(None)
        await far.add_documents(documents())
        with pytest.raises(ConfigurationError, match="compares vectors by l2"):
            await calibrate(far, *judged())


async def test_useless_cosines_give_one_confidence(url):
    """Only what stands last is relevant: a greater cosine is no better sign, and that is told."""
    queries, judgements = judged()
    async with opened(url) as retriever:
        for query, text in queries.items():
            judgements[query] = {(await retriever.search(text, 10))[-1].id: 1}
        report = await calibrate(retriever, queries, judgements)
    assert report.curve.slope == 0
    assert report.curve.probability(0.9) == pytest.approx(0.1, abs=0.01)
    assert any("every hit gets the same confidence" in warning for warning in report.warnings)


@pytest.fixture
def judged_folder(tmp_path):
    queries, judgements = judged()
    rows = {
        "corpus.jsonl": [json.dumps({"_id": document.id, "text": document.content}) for document in documents()],
        "queries.tsv": [f"{query}\t{text}" for query, text in queries.items()],
        "qrels.tsv": [f"{query}\t{one}\t{value}" for query, own in judgements.items() for one, value in own.items()],
    }
    return folder_with(tmp_path, {name: "".join(f"{line}\n" for line in lines) for name, lines in rows.items()})


def test_the_command_line(shell, judged_folder):
    named = ("--queries", judged_folder / "queries.tsv", "--qrels", judged_folder / "qrels.tsv")
    kept = shell("eval", str(judged_folder), "--model", "static", "--limit-queries", "2", "--keep").stderr
    name = kept.partition("--collection ")[2].split()[0]
    done = shell("eval", "calibrate", "-c", name, *map(str, named))
    assert "confidence = 1 / (1 + exp(" in done.stdout
    assert f"kept with the vectors of {name}" in done.stderr
    hit, *_ = shell.objects("search", "-c", name, "subject3 part3")
    assert 0 < hit["confidence"] < 1
    assert f"confidence {hit['confidence']:.2f}" in shell("search", "-v", "-c", name, "subject3 part3").stdout
    assert "judged queries: 36" in shell("status", "-c", name).stdout
    [found] = shell.objects("eval", "calibrate", "-c", name, *map(str, named), "--output", "curve.json")
    assert found["calibration"]["queries"] == QUERIES
    assert found["unjudged"] == found["calibration"]["pairs"] - 2 * QUERIES
    assert shell.objects("eval", "calibrate", "-c", name, "--drop") == [{"collection": name, "dropped": True}]
    assert "has no calibration" in shell("eval", "calibrate", "-c", name, "--drop").stderr
    assert shell.objects("search", "-c", name, "subject3")[0]["confidence"] is None
    hit, *_ = shell.objects("search", "-c", name, "subject3 part3", "--calibration", "curve.json")
    file = shell.folder / "curve.json"
    assert hit["confidence"] == read_curve(file).probability(hit["vector_score"])
    file.write_text(file.read_text(encoding="utf-8").replace("wordllama", "other"), encoding="utf-8")
    refused = shell("search", "-c", name, "subject3", "--calibration", "curve.json", code=2)
    assert "was learned with other" in refused.stderr


def test_a_set_alone_is_learned_from_and_nothing_stays_and_wrong_use_is_refused(shell, judged_folder, monkeypatch):
    for arguments, told in (
        ((), "give the folder of a judged set"),
        (("nowhere",), "nowhere does not exist"),
        (("--drop", "."), "--drop accepts only --collection"),
        ((".", "--output", "no/curve.json"), "--output: folder no does not exist"),
        ((".", "--depth", "0"), "depth"),
        ((".", "--folds", "1"), "folds"),
        ((".", "--limit-queries", "5"), "5 judged queries are too few"),
    ):
        given = [str(judged_folder) if one == "." else one for one in arguments]
        assert told in shell("eval", "calibrate", *given, code=2).stderr
    command = ("eval", "calibrate", str(judged_folder), "--model", "static")
    assert "nothing was kept" in shell(*command).stderr
    assert shell.objects("collections") == []
    monkeypatch.setattr(Embeddings, "store_calibration", AsyncMock(side_effect=PrivilegeError("it may not write")))
    assert "it may not write; --output FILE" in shell(*command, "--keep", code=2).stderr


def test_queries_without_a_relevant_document_can_be_asked_for(judged_folder):
    with (judged_folder / "qrels.tsv").open("a", encoding="utf-8") as stream:
        stream.write("lost\tabout1\t0\n")
    with (judged_folder / "queries.tsv").open("a", encoding="utf-8") as stream:
        stream.write("lost\tnobody knows\n")
    assert "lost" not in read_judged_set(judged_folder).queries
    answerable = read_judged_set(judged_folder, unanswerable=True)
    assert answerable.judgements["lost"] == {"about1": 0}
    assert answerable.left_out == ()
