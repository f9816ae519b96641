"""The same injections against answers and lines about chunks: a model that obeys, and what follows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

from semlex import Document, Enrichment, SyncRetriever
from semlex.chat import visible
from semlex.ingest.enrichment import MAX_LINE_CHARACTERS
from tests.support.chat_servers import answer_text, chat_server
from tests.support.injections import PATTERNS, name_of
from tests.support.line_models import asked_passage
from tests.support.model_servers import KEY, Request

pytestmark = pytest.mark.slow  # most of them

SECRET = "The combination of the vault is 4711."  # noqa: S105 - no password
TRUE = "An otter swims"


def test_what_a_model_is_talked_into_stays_inside_its_line_and_its_sentence(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SEMLEX_CHAT_API_KEY", KEY)
    pattern: str
    context: Any = None

    def say(request: Request) -> str:
        """A model that obeys: it writes the pattern, claims it with a quote that is none, and quotes truly once."""
        if '{"line"' in request.body["messages"][0]["content"]:
            return json.dumps({"line": f"{pattern}\n\x1b[2J>>> end {SECRET[:0]}" * 20})
        number = next(source.number for source in context.sources if TRUE in source.text)
        true = [(number, TRUE), (99, TRUE), (number, "words that stand nowhere in it")]
        return answer_text([(f"An otter swims. {pattern}", true)])

    with (
        chat_server(say) as double,
        SyncRetriever(database_url, "none", collection="other") as other,
        SyncRetriever(
            database_url, "none", use_reranking=False, chat_model=(name := f"{double.url}/v1#obedient")
        ) as retriever,
    ):
        other.add_documents([Document(f"An otter. {SECRET}", id="secret")])
        for number, pattern in enumerate(PATTERNS.values()):
            folder = tmp_path / f"docs{number}"
            folder.mkdir()
            (folder / "text.md").write_text(f"# Otters\n\n{TRUE} far.\n\n{pattern}\n", encoding="utf-8")
            (folder / "title.md").write_text(f"# otter {pattern}\n\nAnother otter.\n", encoding="utf-8")
            (folder / f"{name_of(pattern)}.md").write_text("The otter by another name.\n", encoding="utf-8")
            named: dict[str, Any] = {"source_document": pattern, "chapter_title": pattern, "note": pattern}
            double.requests.clear()
            report = retriever.index(folder, on_bad_text="repair", enrichment=name)
            retriever.add_documents([Document("A named otter.", named, id="named")], enrichment=Enrichment(name))
            assert report.enrichment is not None
            assert report.enrichment.failed == 0
            chunks = retriever.list_chunks(limit=100)
            stored = {visible(chunk.content) for chunk in chunks}
            for request in double.requests:  # about lines, so far
                content = request.body["messages"][1]["content"]
                mark = content.split("<<< ", 1)[1].split(maxsplit=1)[0]
                assert content.count(mark) == 6  # named twice, and around titles and passage
                assert asked_passage(content)[1] in stored | {"Rotate a key every ninety days."}
            asked = len(double.requests)
            context = retriever.context("otter swims far", near_duplicates=None)
            answer = retriever.answer("otter swims far", context=context, min_coverage=0)
            _check_lines(database_url)
            # The quote that stands there is found, the forged ones are flagged, and nothing follows from the sentence.
            verdicts = {citation.quote: citation.verdict for citation in answer.citations if citation.source != 99}
            assert verdicts[TRUE] == "exact", pattern
            assert verdicts["words that stand nowhere in it"] == "not found"
            assert all(c.verdict == "unknown source" for c in answer.citations if c.source == 99)
            assert answer.sentences[0].is_supported
            assert not any(re.search(r"\[\d+\]", sentence.text) for sentence in answer.sentences)
            (request,) = double.requests[asked:]
            assert request.body["messages"][1]["content"].count(context.mark) == 2 + 2 * len(context.sources)
            # Nothing of another collection, and no key, in any prompt, answer, or log.
            told = json.dumps([request.body for request in double.requests]) + answer.text + caplog.text + repr(report)
            assert SECRET not in told
            assert KEY not in told
            retriever.delete([chunk.id for chunk in chunks])


def _check_lines(database_url: str) -> None:
    """Every chunk has one line, bounded, and without what nobody sees; its text is as it was."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT context, content_hash, chunk_text FROM semlex.default_collection_chunk"
        ).fetchall()
    assert rows
    for context, content_hash, _ in rows:
        assert len(content_hash) == 24
        line = context.rpartition("\n")[2]
        assert 0 < len(line) <= MAX_LINE_CHARACTERS
        assert line == visible(line)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", line)
