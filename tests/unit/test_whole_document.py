"""A document put together again of its chunks, and its headings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.ingest.document_chunks import Chunker
from semlex.models.tokenizer import WordCounter
from semlex.options.collection import ChunkSettings
from semlex.search.passages import headings_of, text_of
from semlex.types.documents import StoredChunk
from tests.support.markdown_texts import STRUCTURES, TEXT

PAGE = """# Keys

About keys.

## Rotation

Rotate a key every ninety days.

### Tools

The vault.

## Rotation

Once more.

# Locks

## Doors

Closed.
"""


def stored(text, structure, settings):
    chunks = Chunker(WordCounter(), settings).cut(text, structure).chunks
    return [
        StoredChunk(
            chunk.text, id=str(chunk.chunk_no), heading_path=chunk.heading_path, char_start=chunk.char_start,
            char_end=chunk.char_end, line=chunk.line,
        )
        for chunk in chunks
    ]  # fmt: skip


SETTINGS = st.sampled_from([ChunkSettings(16, 0, 0), ChunkSettings(16, 7, 8), ChunkSettings(500, 50, 32)])


@given(text=TEXT, structure=st.sampled_from(STRUCTURES), settings=SETTINGS)
def test_a_text_comes_back_but_for_blanks(text, structure, settings):
    back = text_of(stored(text, structure, settings))
    assert "".join(back.split()) == "".join(text.split())


@given(text=TEXT, structure=st.sampled_from(STRUCTURES), settings=SETTINGS)
def test_headings_are_in_order_and_lead_to_chunks(text, structure, settings):
    chunks = stored(text, structure, settings)
    headings = headings_of(chunks, structure)
    lines = [heading.line or 0 for heading in headings]
    assert lines == sorted(lines)
    assert all(1 <= line <= len(text.splitlines()) for line in lines)
    assert {one for heading in headings for one in heading.chunk_ids} <= {chunk.id for chunk in chunks}
    assert all(heading.chunk_ids and heading.title for heading in headings)


@pytest.mark.parametrize("settings", [ChunkSettings(16, 0, 0), ChunkSettings(500, 50, 32)])
def test_headings_do_not_depend_on_how_it_was_cut(settings):
    headings = headings_of(stored(PAGE, "markdown", settings), "markdown")
    assert [(one.level, one.title, one.line) for one in headings] == [
        (1, "Keys", 1),
        (2, "Rotation", 5),
        (3, "Tools", 9),
        (2, "Rotation", 13),
        (1, "Locks", 17),
        (2, "Doors", 19),
    ]


def test_added_chunks_have_the_headings_that_they_brought():
    chunks = [
        StoredChunk("One.", id="a", heading_path=("Keys",)),
        StoredChunk("Two.", id="b", heading_path=("Keys", "Rotation")),
        StoredChunk("Three.", id="c", heading_path=("Keys", "Rotation")),
    ]
    found = headings_of(chunks, "markdown")
    assert [(one.level, one.title, one.line, one.chunk_ids) for one in found] == [
        (1, "Keys", None, ("a",)),
        (2, "Rotation", None, ("b", "c")),
    ]
    assert text_of(chunks) == "One.\n\nTwo.\n\nThree."
