"""The questions of a checkup: headings of a collection, and texts from which a heading is taken away."""

from __future__ import annotations

import random
import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex import _core
from semlex.ingest.chunk_rows import CONTEXT_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from semlex.store.query.surroundings import SectionChunk, SectionRow

# A heading that more sections have is no fair question: each of them would be right.
MAX_REPEATS = 2
# A section of more chunks is about many things, and one of its chunks is found too easily.
MAX_SECTION_CHUNKS = 12
# Files of source code whose definitions say in a docstring what they do.
DOCSTRINGS = (".py", ".pyi")
_DOCSTRING = re.compile(r"""^\s*[rRuU]?(\"{3}|'{3})\s*(?:\\\n\s*)?([^\n]*?)\s*(?:\1.*)?$""", re.MULTILINE)
# What stands on the line of a heading beside its words, in Markdown and reStructuredText.
_BESIDE = re.compile(r"\]\([^)]*\)|\{:?\s*[#.][^}]*\}\s*$|^\s*\.\.\s+(?:_|[\w:-]+::)|:[\w:+-]+:(?=`)")
_RULE = re.compile(r"\s*([!-/:-@\[-`{-~])\1+\s*")
# What the keyword leg reads as a phrase, or as an exclusion.
_QUOTES = frozenset('"\u00ab\u00bb\u201c\u201d\u201e')
_DASHES = re.compile(r"(?<!\S)-+")
# Longer headings are asked by their beginning; a search takes 4 KiB.
MAX_QUESTION_CHARACTERS = 1_000
# Titles are cut at so many characters when a document is read.
TITLE_CHARACTERS = 256

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with all chunks that stand under it.

    Attributes:
        source: Name of the source.
        document: Name of the document.
        path: The headings, outermost first; the last one is asked.
        documents: Keys of the documents of its chunks.
    """

    source: str
    document: str
    path: tuple[str, ...]
    documents: tuple[UUID, ...]

    @property
    def is_code(self) -> bool:
        """Whether a docstring is asked in place of the heading."""
        return self.document.lower().endswith(DOCSTRINGS)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which headings can be asked, and which not.

    Attributes:
        sections: Those that can, shuffled.
        headings: Number of all headings.
        repeated: Left out, because several sections have them.
        wide: Left out, because there are so many chunks under them.
        wordless: Left out, because there is no word in them.
        chunks: Chunks of each document, by source and name.
    """

    sections: list[Section]
    headings: int
    repeated: int
    wide: int
    wordless: int
    chunks: Counter[tuple[str, str]]


def words_of(text: str) -> Words:
    """The words of a text, in one case."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return tuple(folded[start:end] for start, end in _core.word_offsets(folded).tolist())


def question_of(heading: str) -> str:
    """A heading as a question: quotes, and dashes before a word, would demand or exclude words, and are blanks."""
    plain = "".join(" " if one in _QUOTES or unicodedata.category(one) == "Cc" else one for one in heading)
    return " ".join(_DASHES.sub(" ", plain[:MAX_QUESTION_CHARACTERS]).split())


def choose(rows: Sequence[SectionRow], seed: int) -> Choice:
    """The headings that can be asked, in an order that follows from the seed.

    A heading counts where text stands directly under it.
    """
    chunks: Counter[tuple[str, str]] = Counter()
    for row in rows:
        chunks[row.source, row.document] += row.chunks
    found = [one for own in _files(rows) for one in _sections(own)]
    repeats = Counter(words_of(section.path[-1]) for section, _ in found if not section.is_code)
    fair: list[Section] = []
    left_out: Counter[str] = Counter()
    for section, count in found:
        words = words_of(section.path[-1])
        if not words:
            left_out["wordless"] += 1
        elif repeats[words] > MAX_REPEATS:
            left_out["repeated"] += 1
        elif count > MAX_SECTION_CHUNKS:
            left_out["wide"] += 1
        else:
            fair.append(section)
    fair.sort(key=lambda one: (one.source, one.document, one.path, one.documents))
    random.Random(seed).shuffle(fair)  # noqa: S311 - a sample, no secret
    return Choice(fair, len(found), left_out["repeated"], left_out["wide"], left_out["wordless"], chunks)


def _files(rows: Sequence[SectionRow]) -> Iterable[list[SectionRow]]:
    """The rows of each document that have headings."""
    files: dict[tuple[str, str, tuple[UUID, ...]], list[SectionRow]] = defaultdict(list)
    for row in rows:
        if row.path:
            # Files of one name may stand in two sources; added chunks without a name are documents by themselves.
            own = row.documents if row.source or not row.document else ()
            files[row.source, row.document, own].append(row)
    return files.values()


def _sections(rows: Sequence[SectionRow]) -> Iterable[tuple[Section, int]]:
    """The sections of a document with the number of their chunks, those of the sections inside among them."""
    below: dict[tuple[str, ...], list[SectionRow]] = defaultdict(list)
    for row in rows:
        for depth in range(1, len(row.path) + 1):
            below[row.path[:depth]].append(row)
    for path in dict.fromkeys(row.path for row in rows):
        keys = tuple(sorted({key for row in below[path] for key in row.documents}))
        yield Section(rows[0].source, rows[0].document, path, keys), sum(row.chunks for row in below[path])


def docstring_of(chunks: Sequence[SectionChunk]) -> str:
    """The first line of the first docstring of a section; "" without one."""
    for chunk in chunks:
        match = _DOCSTRING.search(chunk.text)
        if match is not None:
            return match[2]
    return ""


def without(heading: str, chunk: SectionChunk) -> tuple[str, str]:
    """Context and text of a chunk without a heading.

    It is taken out of the path above the chunk, and of the text go the lines that hold nothing but its words.
    """
    words, text = words_of(heading), chunk.text
    if len(heading.splitlines()) > 1:
        text = text.replace(heading, "")
    return _context_without(words, chunk), _text_without(words, text, is_cut=len(heading) >= TITLE_CHARACTERS)


def _context_without(words: Words, chunk: SectionChunk) -> str:
    line, separator, rest = chunk.context.partition("\n")
    joined = CONTEXT_SEPARATOR.join(chunk.path)
    if not line.endswith(joined):
        # A title may hold a line break.
        line, separator, rest = chunk.context, "", ""
        at = line.find(joined)
        if at >= 0:
            line, rest = line[: at + len(joined)], line[at + len(joined) :]
    parts: list[str]
    if joined and line.endswith(joined):
        title = line[: len(line) - len(joined)].removesuffix(CONTEXT_SEPARATOR)
        parts = [title, *chunk.path] if title else list(chunk.path)
    else:
        parts = line.split(CONTEXT_SEPARATOR)
    kept = CONTEXT_SEPARATOR.join(part for part in parts if words_of(part) != words)
    return f"{kept}{separator}{rest}" if kept else rest.lstrip("\n")


def _text_without(words: Words, text: str, *, is_cut: bool) -> str:
    lines = text.splitlines(keepends=True)
    stays = [True] * len(lines)
    for number, line in enumerate(lines):
        own = words_of(_BESIDE.sub(" ", line))
        if own == words or (is_cut and words and _begins(own, words)):
            # With the lines above and below it, of which a heading may be made.
            for near in (number - 1, number, number + 1):
                if near == number or (0 <= near < len(lines) and _RULE.fullmatch(lines[near])):
                    stays[near] = False
    return "".join(line for line, kept in zip(lines, stays, strict=True) if kept)


def _begins(own: Words, words: Words) -> bool:
    """Whether words begin with others, of which the last may be cut."""
    last = len(words) - 1
    return len(own) > last and own[:last] == words[:last] and own[last].startswith(words[last])
