"""Chunks are slices that cover their text, fit, and overlap within the bound."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from semlex import _core
from semlex.errors import ConfigurationError, ValidationError
from semlex.ingest.document_chunks import Chunker
from semlex.models.tokenizer import TokenEstimate, WordCounter
from semlex.options.collection import MAX_CHUNK_TOKENS, MIN_CHUNK_TOKENS, ChunkSettings, WantedOptions, default_min
from tests.support.markdown_texts import MARKDOWN, STRUCTURES, TEXT, bounds


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
def test_chunks_cover_fit_and_overlap_within_the_bound_and_plain_text_has_no_heading(data, text, limits, structure):
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
    found = _core.split_text(text, _core.word_offsets(text), structure="plain", **limits)
    assert (set(found.headings) | {()}, found.title, found.code.any()) == ({()}, None, False)


# --- examples ---------------------------------------------------------------------------------------------------------
def split(text, *, most=20, overlap=0, least=4, structure="markdown", max_bytes=10_000, offsets=None):
    limits = {"max_tokens": most, "overlap_tokens": overlap, "min_tokens": least, "max_bytes": max_bytes}
    offsets = _core.word_offsets(text) if offsets is None else offsets
    found = _core.split_text(text, offsets, structure=structure, **limits)
    return [text[start:end] for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True)], found


def test_examples_of_sentences_words_headings_and_code():
    text = "One two three four. Five six seven. Eight nine ten eleven. Twelve thirteen."
    chunks, _ = split(text, most=8, overlap=3, least=0, structure="plain")
    # Half of what the second chunk does not repeat holds no whole sentence, so the third begins at a word.
    overlapping = ["Five six seven. Eight nine ten eleven.", "ten eleven. Twelve thirteen."]
    assert chunks == ["One two three four. Five six seven.", *overlapping]
    text = "Can't stop 3.14 café_x, 漢字 — no!"
    words = [text[start:end] for start, end in _core.word_offsets(text).tolist()]
    assert words == ["Can't", "stop", "3.14", "café_x", "漢", "字", "no"]
    chunks, _ = split("x" * 1000, max_bytes=300)
    assert [len(chunk) for chunk in chunks] == [300, 300, 300, 100]
    offsets = np.array([[0, 1]] + [[1, 2]] * 9 + [[2, 3]])  # a character of many tokens is one chunk
    _, found = split("a👩b", most=4, overlap=1, least=0, max_bytes=100, offsets=offsets)
    assert found.starts.tolist() == [0, 1, 2]
    assert found.token_counts.tolist() == [1, 9, 1]
    _, found = split("# " + "t " * 1000 + "\n\nbody")
    assert [len(title) for title in found.headings[-1]] == [255]
    body = " ".join(f"word{number}" for number in range(60))
    chunks, found = split(f"# Title\n\n## Part\n\n{body}\n\n## Empty")
    assert chunks[0].startswith("# Title\n\n## Part\n\nword0")
    assert chunks[-1].endswith("## Empty")
    assert len(chunks[-1].split()) > 2
    assert found.headings[0] == ("Title", "Part")
    chunks, found = split("# T\n\n## A\n\na a\n\n## B\n\nb b b b b b\n\n# U\n\nu u u u", least=5)
    assert chunks == ["# T\n\n## A\n\na a\n\n## B\n\nb b b b b b", "# U\n\nu u u u"]
    assert found.headings == [("T",), ("U",)]
    assert found.title == "T"
    code = "```python\n" + "\n\n".join(f"x{number} = {number}" for number in range(9)) + "\n```"
    chunks, found = split("one two three four five six seven\n\n" + code)
    assert code in chunks
    assert found.code.tolist() == [chunk == code for chunk in chunks]


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
    with pytest.raises(ValueError, match=message):
        _core.split_text(**defaults | {"min_tokens": 0, "structure": "markdown", "max_bytes": 100} | options)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_words_hold_a_letter_or_a_digit_and_cover_them_all(text):
    offsets = _core.word_offsets(text)
    assert offsets.dtype == np.int64
    covered, last = set(), 0
    for start, end in offsets.tolist():
        assert last <= start < end
        assert not text[start:end].isascii() or any(character.isalnum() for character in text[start:end])
        covered.update(range(start, end))
        last = end
    assert {place for place, character in enumerate(text) if character.isascii() and character.isalnum()} <= covered


# --- finished chunks --------------------------------------------------------------------------------------------------


class TrainedCounter:
    """A byte-level BPE tokenizer, trained on a sentence: most characters take several tokens."""

    counter_name = "bpe/test"

    def __init__(self):
        self._tokenizer = Tokenizer(models.BPE())
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=300, show_progress=False, initial_alphabet=sorted(alphabet))
        self._tokenizer.train_from_iterator(["a word and another word and the end of a sentence"] * 3, trainer)

    def token_offsets(self, text):
        offsets = np.array(self._tokenizer.encode(text).offsets, dtype=np.int64).reshape(-1, 2)
        return np.maximum.accumulate(offsets, axis=0)

    def count_tokens(self, texts):
        return np.array([len(self._tokenizer.encode(text).ids) for text in texts], dtype=np.int64)


class HonestOnlyAlone:
    """Counts half of the characters inside a text and all of them in a chunk: every full chunk is too long."""

    counter_name = "alone/test"

    def token_offsets(self, text):
        return np.array([(place, place + 1) for place in range(0, len(text), 2)], dtype=np.int64).reshape(-1, 2)

    def count_tokens(self, texts):
        return np.array([len(text) for text in texts], dtype=np.int64)


class WordsButTwo(WordCounter):
    """A user's counter that has something of words: the start of each is a token of its own, if it stands alone."""

    counter_name = "but-two/test"

    def count_tokens(self, texts):
        return super().count_tokens(texts) + 2


COUNTERS = {one.counter_name: one for one in (WordCounter, TokenEstimate, TrainedCounter, HonestOnlyAlone, WordsButTwo)}


@pytest.fixture(scope="module", params=COUNTERS)
def counter(request):
    return COUNTERS[request.param]()


@given(data=st.data(), text=TEXT, chunk_tokens=st.integers(16, 60), structure=st.sampled_from(STRUCTURES))
def test_finished_chunks_fit_by_their_own_count(counter, data, text, chunk_tokens, structure):
    overlap = data.draw(st.integers(0, (chunk_tokens - 1) // 2))
    least = data.draw(st.integers(0, chunk_tokens // 2))
    chunks = Chunker(counter, ChunkSettings(chunk_tokens, overlap, least)).cut(text, structure).chunks
    assert [chunk.chunk_no for chunk in chunks] == list(range(len(chunks)))
    covered = set()
    for chunk in chunks:
        assert chunk.text == text[chunk.char_start : chunk.char_end]
        assert chunk.text.strip()
        assert chunk.token_count == counter.count_tokens([chunk.text])[0]
        assert chunk.token_count <= chunk_tokens or len(chunk.text) == 1
        assert chunk.line == 1 + len(re.findall(r"\r\n|\r|\n", text[: chunk.char_start]))
        covered.update(range(chunk.char_start, chunk.char_end))
    assert {place for place, character in enumerate(text) if not character.isspace()} <= covered
    assert all(one.char_start < other.char_start and one.char_end < other.char_end for one, other in pairwise(chunks))
    for before, after in zip(chunks, chunks[2:], strict=False):
        assert before.char_end <= after.char_start


def test_the_chunker_refuses_sizes_out_of_range_and_arguments_that_are_not_texts():
    for option, value, message in [
        ("chunk_tokens", 15, "chunk_tokens must be between 16 and 2,000; got 15"),
        ("chunk_tokens", 2001, ""), ("chunk_tokens", True, ""), ("chunk_tokens", 100.0, ""),
        ("overlap_tokens", 250, "overlap_tokens must be between 0 and 249; got 250"), ("overlap_tokens", -1, ""),
        ("min_tokens", 251, "min_tokens must be between 0 and 250; got 251"), ("min_tokens", -1, ""),
        ("min_tokens", 30.0, ""),
    ]:  # fmt: skip
        with pytest.raises(ConfigurationError, match=message or option):
            Chunker(WordCounter(), ChunkSettings(**{option: value}))
    for text, code in ((b"bytes", "wrong_type"), ("a\udc80", "lone_surrogate")):
        with pytest.raises(ValidationError) as refused:
            Chunker(WordCounter()).cut(text)
        assert [(error.field, error.code) for error in refused.value.errors] == [("text", code)]
    for text in ("", " \n\t\x1c", "\u3000"):
        assert Chunker(WordCounter()).cut(text).chunks == []


# --- headings, as a slow twin finds them ------------------------------------------------------------------------------

RULE = re.compile(r"([-*_])\s*(\1\s*){2,}$")
NESTED = re.compile(r">|[-*+](?:[ \t]|$)|\d{1,9}[.)](?:[ \t]|$)", re.ASCII)


def lines_of(text):
    """(start, end, line without its break) of every line."""
    return [(found.start(), found.end(), found[1]) for found in re.finditer(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)", text)]


def unindented(line):
    """The line without its indentation, or None when that is four columns or more."""
    return None if re.match(r" {4}| {0,3}\t", line) else line.lstrip(" ")


def front_matter_lines(lines):
    if len(lines) < 2 or lines[0][2].removeprefix("\ufeff").rstrip() != "---" or not lines[1][2].strip():
        return 0
    closing = (number for number in range(1, len(lines)) if lines[number][2].rstrip() in ("---", "..."))
    return next(closing, -1) + 1


def visible_lines(text):
    """What is neither front matter nor fenced code nor a comment; a hidden line is None."""
    lines = lines_of(text)
    hidden = front_matter_lines(lines)
    fence, indented, comment = "", 0, False
    for number, (start, end, line) in enumerate(lines):
        body = unindented(line)
        opened = re.match(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})", line)
        indent = len(line) - len(line.lstrip(" \t"))
        if fence and indented >= 4 and line.strip() and indent < indented:
            fence = ""  # code in a list ends with its item
        if number < hidden:
            yield start, end, None
        elif fence:
            marks = line.strip()
            if indent < indented + 4 and set(marks) == {fence[0]} and len(marks) >= len(fence):
                fence = ""
            yield start, end, None
        elif comment or (body or "").startswith("<!--"):
            comment = "-->" not in line
            yield start, end, None
        else:
            fence, indented = (opened[1], indent) if opened else ("", 0)
            yield start, end, None if opened else line


def slow_headings(text):
    """(start, end, level, title) of every heading."""
    paragraph, nested = None, False
    for start, end, line in visible_lines(text):
        body = unindented(line) if line and line.strip() else ""
        if body is None:
            continue
        atx = re.match(r"(#{1,6})(?:[ \t](.*))?$", body, re.DOTALL)
        underline = re.match(r"(=+|-+)\s*$", body)
        if atx:
            title = (atx[2] or "").strip()
            yield start, end, len(atx[1]), re.sub(r"(^|(?<=[ \t]))#+$", "", title)
        elif underline and paragraph is not None:
            yield paragraph, end, 1 if body[0] == "=" else 2, text[paragraph:start]
        elif body and not RULE.match(body):
            nested = nested or bool(NESTED.match(body))
            paragraph = None if nested else start if paragraph is None else paragraph
            continue
        paragraph, nested = None, False


def slow_sections(text):
    """(start, start of the text below the heading, end, {level: (number, title)}) of every section."""
    path, parts = {}, [(0, 0, {})]
    for number, (start, end, level, title) in enumerate(slow_headings(text)):
        path = {above: name for above, name in path.items() if above < level}
        path[level] = (number, " ".join(title.split())[:256].strip())
        parts.append((start, end, path))
    ends = [start for start, _, _ in parts[1:]] + [len(text)]
    return [(start, below, end, titles) for (start, below, titles), end in zip(parts, ends, strict=True)]


def slow_path(sections, text, start, end):
    """What the paths of the sections in a chunk have in common; sections whose body it holds come first."""
    touched = [part for part in sections if part[0] < end and start < part[2] and text[part[0] : part[2]].strip()]
    touched = [part for part in touched if text[max(start, part[0]) : min(end, part[2])].strip()]
    with_body = [part for part in touched if text[max(start, part[1]) : min(end, part[2])].strip()]
    titles = [part[3] for part in with_body or touched]
    common = []
    for level in range(1, 7):
        found = {path.get(level) for path in titles}
        found = {None if entry is None or not entry[1] else entry for entry in found}
        if len(found) > 1:
            break
        common += [entry[1] for entry in found if entry]
    return tuple(common)


@given(MARKDOWN, bounds())
def test_headings_are_those_of_the_twin(text, limits):
    found = _core.split_text(text, _core.word_offsets(text), structure="markdown", **limits)
    sections = slow_sections(text)
    for start, end, path in zip(found.starts.tolist(), found.ends.tolist(), found.headings, strict=True):
        assert path == slow_path(sections, text, start, end)
    firsts = [path[1][1] for _, _, _, path in sections if max(path, default=0) == 1 and path[1][1]]
    assert found.title == (firsts[0] if firsts else None)


# --- sizes that users want --------------------------------------------------------------------------------------------


@st.composite
def settings(draw):
    most = draw(st.integers(MIN_CHUNK_TOKENS, MAX_CHUNK_TOKENS))
    least = st.integers(0, most // 2) | st.just(default_min(most))
    return ChunkSettings(most, draw(st.integers(0, (most - 1) // 2)), draw(least))


def some(of, names):
    return {name: number for name, number in of._asdict().items() if name in names}


@given(said=settings(), other=settings(), names=st.sets(st.sampled_from(ChunkSettings._fields)))
def test_given_sizes_are_taken_and_defaults_and_stored_sizes_fit_them(said, other, names):
    assert WantedOptions.checked(said._asdict(), {}).chunk_settings() == said
    assert WantedOptions.checked({}, {}).rechunk_settings(other) == other
    defaults = some(other, names)
    cut = WantedOptions.checked({"chunk_tokens": said.chunk_tokens}, defaults).chunk_settings()
    cut.check()
    assert cut.chunk_tokens == said.chunk_tokens
    assert cut.overlap_tokens <= defaults.get("overlap_tokens", 50)
    assert cut.min_tokens <= defaults.get("min_tokens", 32)
    # What is said of one alone may contradict the stored size, which is refused elsewhere.
    wanted = WantedOptions.checked(some(said, names | {"chunk_tokens"}), {}).rechunk_settings(other)
    wanted.check()
    assert some(wanted, names) == some(said, names)
    assert "overlap_tokens" in names or wanted.overlap_tokens <= other.overlap_tokens
    if "min_tokens" not in names:
        was_default = other.min_tokens == default_min(other.chunk_tokens)
        expected = default_min(said.chunk_tokens) if was_default else min(other.min_tokens, said.chunk_tokens // 2)
        assert wanted.min_tokens == expected


def test_defaults_that_contradict_each_other_are_refused():
    both = {"chunk_tokens": 100, "overlap_tokens": 60}
    with pytest.raises(ConfigurationError, match="overlap_tokens must be between 0 and 49"):
        WantedOptions.checked({}, both)
    assert WantedOptions.checked({"chunk_tokens": 100}, both).chunk_settings().overlap_tokens == 49
