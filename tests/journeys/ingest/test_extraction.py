"""Metadata that a function of the user's reads out of texts: merged, checked, and told by name where it fails."""

import asyncio
import threading
from itertools import product
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semlex import Document, MetadataExtraction
from semlex.errors import ConfigurationError
from tests.support.folders import folder_with
from tests.support.properties import OWN_ROWS, examples
from tests.support.retrievers import opened, sync_opened

VALUES = st.integers(0, 5) | st.text(st.characters(codec="ascii", min_codepoint=32), max_size=3)
MAPPINGS = st.dictionaries(st.sampled_from(["a", "b", "c", "words"]), VALUES)


def words(document):
    return {"words": len(document.content.split()), "from": document.id}


async def words_later(document):
    await asyncio.sleep(0)
    return words(document)


@pytest.fixture
def retriever(database_url):
    with sync_opened(database_url, "none", chunk_tokens=16) as retriever:
        yield retriever


@pytest.fixture
def folder(tmp_path):
    by_hand = "---\nwords: by hand\n---\n# A\n\nOne two three.\n"
    long = "# B\n\nOne two three four.\n\n" + "More words here. " * 20
    return folder_with(tmp_path / "docs", {"a.md": by_hand, "b.md": long})


def stored(retriever, name):
    return [chunk.metadata for chunk in retriever.list_chunks(filters=f"@source_document == '{name}'", limit=100)]


@pytest.mark.slow
@settings(OWN_ROWS, max_examples=examples(25))
@given(by_hand=MAPPINGS, read=MAPPINGS)
def test_what_was_given_by_hand_wins(retriever, by_hand, read):
    for per in ("document", "chunk"):
        extraction = MetadataExtraction(lambda _: read, per=per)
        retriever.add_documents([Document("text", by_hand, id="x")], extract_metadata=extraction)
        assert retriever.get(["x"])[0].metadata == {**read, **by_hand}


@pytest.mark.parametrize("extract", [words, words_later])
def test_files(retriever, folder, extract):
    assert retriever.index(folder, extract_metadata=extract).added == 2
    assert stored(retriever, "a.md") == [{"words": "by hand", "from": "a.md"}]
    several = stored(retriever, "b.md")
    assert len(several) > 2
    assert all(metadata == {"words": 66, "from": "b.md"} for metadata in several)  # of the whole document
    assert {hit.source_document for hit in retriever.search("words", filters="words == 66")} == {"b.md"}
    # Files that did not change are not asked about again; one that did is.
    (folder / "a.md").write_text("# A\n\nOne.\n", encoding="utf-8")
    noted = Mock(side_effect=words)
    retriever.sync(folder, extract_metadata=noted)
    assert [call.args[0].id for call in noted.call_args_list] == ["a.md"]
    assert stored(retriever, "a.md") == [{"words": 3, "from": "a.md"}]
    # The function is called for each chunk: of new files, and of those that are cut again.
    retriever.delete(source="docs")
    options = {"extract_metadata": MetadataExtraction(extract, per="chunk")}
    for cut in (
        lambda: retriever.index(folder, **options).added,
        lambda: retriever.documents.rechunk(**options, chunk_tokens=17).changed,
    ):
        assert cut() == 2
        chunks = retriever.list_chunks(filters="@source_document == 'b.md'", limit=100)
        assert [chunk.metadata["words"] for chunk in chunks] == [len(chunk.content.split()) for chunk in chunks]
        assert all(chunk.metadata.keys() == {"words", "from"} for chunk in retriever.list_chunks(limit=100))


BAD = {
    "raises": (lambda _: 1 / 0, "raised ZeroDivisionError"),
    "list": (lambda _: [1], "returned list instead of a mapping"),
    "nan": (lambda _: {"x": float("nan")}, "cannot be stored"),
    "object": (lambda _: {"x": object()}, "cannot be stored"),
    "nul": (lambda _: {"x": "a secret\0"}, "cannot be stored"),
    "huge": (lambda _: {"x": "a secret" * 200_000}, "cannot be stored"),
}


def test_a_function_that_fails_is_told_with_the_document(retriever, folder):
    for per, (case, (bad, message)) in product(("document", "chunk"), BAD.items()):

        def extract(document, bad=bad):
            return bad(document) if document.id == "b.md" else {}

        report = retriever.index(folder, extract_metadata=MetadataExtraction(extract, per=per))
        (problem,) = report.problems
        assert (problem.source_document, problem.code) == ("b.md", "extraction_failed"), case
        assert message in problem.message, case
        assert "secret" not in problem.message, case
        assert report.added == 1
        with pytest.raises(ConfigurationError, match=r"row 1 \('b.md'\): ") as caught:
            retriever.add_documents([Document("a", id="a"), Document("b", id="b.md")], extract_metadata=extract)
        assert "secret" not in str(caught.value), case
        assert retriever.get(["a"]) == []  # nothing was written
        assert retriever.delete(document="a.md").documents == 1
    with pytest.raises(ConfigurationError, match="per"):
        MetadataExtraction(words, per="page")
    calls = (retriever.index, folder), (retriever.sync, folder), (retriever.add_documents, [Document("x")])
    for wrong, (call, what) in product((7, "words"), calls):
        with pytest.raises(ConfigurationError, match="extract_metadata"):
            call(what, extract_metadata=wrong)


async def test_what_waits_runs_in_the_callers_loop_and_the_rest_outside_it(database_url, folder):
    loops, threads = set(), set()

    async def later(_):
        loops.add(asyncio.get_running_loop())
        return {}

    def at_once(_):
        threads.add(threading.current_thread())
        return {}

    async with opened(database_url, "none") as retriever:
        for extract in (later, at_once):
            await retriever.add_documents([Document("x")], extract_metadata=extract)
            (folder / "a.md").write_text(f"{extract}", encoding="utf-8")
            await retriever.index(folder, extract_metadata=extract)
    assert loops == {asyncio.get_running_loop()}
    assert threads
    assert threading.current_thread() not in threads
