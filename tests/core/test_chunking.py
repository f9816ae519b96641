"""Chunks are slices that cover their text, fit, and overlap within the bound."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from tests.support.markdown_texts import STRUCTURES, TEXT, bounds


@st.composite
def token_offsets(draw, text):
    """Words, characters, or any ascending intervals, with gaps, overlaps and empty ones."""
    kind = draw(st.sampled_from(["words", "characters", "any"]))
    if kind == "words":
        return _core.word_offsets(text)
    if kind == "characters":
        return np.array([(place, place + 1) for place in range(len(text))], dtype=np.int64).reshape(-1, 2)
    row = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(sorted)
    rows = np.array(draw(st.lists(row, max_size=60)), dtype=np.int64).reshape(-1, 2)
    return np.sort(rows, axis=0)


def touching(offsets, start, end):
    """How many tokens share a character with a range, one by one."""
    return sum(1 for first, last in offsets.tolist() if first < end and last > start and first < last)


@given(st.data(), TEXT, bounds(), st.sampled_from(STRUCTURES))
def test_chunks_cover_fit_and_overlap_within_the_bound(data, text, limits, structure):
    offsets = data.draw(token_offsets(text))
    offsets = offsets[offsets[:, 0] < offsets[:, 1]]
    found = _core.split_text(text, offsets, structure=structure, **limits)
    starts, ends = found.starts.tolist(), found.ends.tolist()
    assert len(found) == len(starts) == len(ends) == len(found.headings) == found.code.size
    covered = set()
    for start, end in zip(starts, ends, strict=True):
        assert not text[start].isspace()
        assert not text[end - 1].isspace()
        covered.update(range(start, end))
    assert {place for place, character in enumerate(text) if not character.isspace()} <= covered
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        count = touching(offsets, start, end)
        assert found.token_counts[number] == count
        assert count <= limits["max_tokens"] or end - start == 1
        assert len(text[start:end].encode()) <= limits["max_bytes"]
        assert found.lines[number] == 1 + len(re.findall(r"\r\n|\r|\n", text[:start]))
    for number in range(1, len(starts)):
        assert starts[number - 1] < starts[number]
        assert ends[number - 1] < ends[number]
        shared_start, shared_end = starts[number], ends[number - 1]
        if shared_start < shared_end:
            assert touching(offsets, shared_start, shared_end) <= limits["overlap_tokens"]
            assert limits["overlap_tokens"] > 0
        assert number == 1 or ends[number - 2] <= starts[number]


@given(TEXT, bounds())
def test_without_markdown_nothing_is_a_heading(text, limits):
    found = _core.split_text(text, _core.word_offsets(text), structure="plain", **limits)
    assert set(found.headings) <= {()}
    assert found.title is None
    assert not found.code.any()


# --- examples ---------------------------------------------------------------------------------------------------------
def split(text, *, most=20, overlap=0, least=4, structure="markdown", max_bytes=10_000):
    found = _core.split_text(
        text,
        _core.word_offsets(text),
        max_tokens=most,
        overlap_tokens=overlap,
        min_tokens=least,
        structure=structure,
        max_bytes=max_bytes,
    )
    return [text[start:end] for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True)], found


def test_a_heading_is_not_a_chunk_by_itself():
    body = " ".join(f"word{number}" for number in range(60))
    chunks, found = split(f"# Title\n\n## Part\n\n{body}\n\n## Empty")
    assert chunks[0].startswith("# Title\n\n## Part\n\nword0")
    assert chunks[-1].endswith("## Empty")
    assert len(chunks[-1].split()) > 2
    assert found.headings[0] == ("Title", "Part")


def test_small_siblings_are_joined_under_their_parent():
    chunks, found = split("# T\n\n## A\n\na a\n\n## B\n\nb b b b b b\n\n# U\n\nu u u u", least=5)
    assert chunks == ["# T\n\n## A\n\na a\n\n## B\n\nb b b b b b", "# U\n\nu u u u"]
    assert found.headings == [("T",), ("U",)]
    assert found.title == "T"


def test_fenced_code_stays_whole_where_it_fits():
    code = "```python\n" + "\n\n".join(f"x{number} = {number}" for number in range(9)) + "\n```"
    chunks, found = split("one two three four five six seven\n\n" + code)
    assert code in chunks
    assert found.code.tolist() == [chunk == code for chunk in chunks]


def test_sentences_are_kept_together_and_overlap():
    text = "One two three four. Five six seven. Eight nine ten eleven. Twelve thirteen."
    chunks, _ = split(text, most=8, overlap=3, least=0, structure="plain")
    # Half of what the second chunk does not repeat holds no whole sentence, so the third begins at a word.
    assert chunks == [
        "One two three four. Five six seven.",
        "Five six seven. Eight nine ten eleven.",
        "ten eleven. Twelve thirteen.",
    ]


def test_a_token_longer_than_anything_is_cut_by_bytes():
    chunks, _ = split("x" * 1000, max_bytes=300)
    assert [len(chunk) for chunk in chunks] == [300, 300, 300, 100]


def test_a_character_of_many_tokens_is_one_chunk():
    found = _core.split_text(
        "a👩b",
        np.array([[0, 1]] + [[1, 2]] * 9 + [[2, 3]]),
        max_tokens=4,
        overlap_tokens=1,
        min_tokens=0,
        structure="markdown",
        max_bytes=100,
    )
    assert found.starts.tolist() == [0, 1, 2]
    assert found.token_counts.tolist() == [1, 9, 1]


def test_long_titles_are_cut():
    _, found = split("# " + "t " * 1000 + "\n\nbody")
    assert [len(title) for title in found.headings[-1]] == [255]


@pytest.mark.parametrize(("options", "message"), [
    ({"max_tokens": 0}, "max_tokens: must be at least 1, found 0"),
    ({"overlap_tokens": -1}, "overlap_tokens: must be at least 0, found -1"),
    ({"overlap_tokens": 5}, "overlap_tokens: must be below max_tokens, 5; found 5"),
    ({"min_tokens": -1}, "min_tokens: must be at least 0"),
    ({"max_bytes": 3}, "max_bytes: must be at least 4, found 3"),
    ({"token_offsets": np.array([[0, 99]])}, "token_offsets: row 0 lies outside the text"),
    ({"token_offsets": np.array([[-1, 1]])}, "token_offsets: row 0 lies outside the text"),
    ({"token_offsets": np.array([[0, 1], [2, 1]])}, "token_offsets: row 1 ends before it starts"),
    ({"token_offsets": np.array([[1, 2], [0, 2]])}, "token_offsets: row 1 starts or ends before the previous row"),
    ({"token_offsets": np.array([[0.0, 1.0]])}, "token_offsets: .*int64.*found float64"),
    ({"token_offsets": np.array([0, 1])}, r"token_offsets: .*\(n, 2\); found int64, shape \(2\)"),
    ({"token_offsets": np.zeros((0, 3), dtype=np.int64)}, r"token_offsets: .*shape \(0, 3\)"),
    ({"text": "ab\ud800"}, "text: lone surrogate at character 2"),
])  # fmt: skip
@pytest.mark.parametrize("letter", ["a", "é"])
def test_refusals_name_the_argument(options, message, letter):
    defaults = {"text": letter * 4, "token_offsets": np.array([[0, 1]]), "max_tokens": 5, "overlap_tokens": 0}
    defaults |= {"min_tokens": 0, "structure": "markdown", "max_bytes": 100}
    with pytest.raises(ValueError, match=message):
        _core.split_text(**(defaults | options))


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_words_hold_a_letter_or_a_digit_and_cover_them_all(text):
    offsets = _core.word_offsets(text)
    assert offsets.dtype == np.int64
    covered = set()
    last = 0
    for start, end in offsets.tolist():
        assert last <= start < end
        assert not text[start:end].isascii() or any(character.isalnum() for character in text[start:end])
        covered.update(range(start, end))
        last = end
    assert {place for place, character in enumerate(text) if character.isascii() and character.isalnum()} <= covered


def test_words_are_those_of_unicode():
    text = "Can't stop 3.14 café_x, 漢字 — no!"
    words = [text[start:end] for start, end in _core.word_offsets(text).tolist()]
    assert words == ["Can't", "stop", "3.14", "café_x", "漢", "字", "no"]
