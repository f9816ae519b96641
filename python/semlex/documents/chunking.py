"""Texts into chunks: sections by headings, then pieces within a bound of tokens.

The Rust core cuts by one tokenisation of the whole text. A chunk that is tokenised by itself may have a few tokens more
than it had inside the text, so the finished chunks are counted, and those above the bound are cut again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from semlex import _core
from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.types import MAX_CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DEFAULT_CHUNK_TOKENS = 500
DEFAULT_OVERLAP_TOKENS = 50
# A section of a line or two is found better together with its neighbour; a quarter of this range is already enough for
# a paragraph that answers a question.
DEFAULT_MIN_TOKENS = 32
# Retrieval works best from 200 to 2,000 tokens; smaller bounds serve tests and short-context models.
LEAST_CHUNK_TOKENS = 16
MOST_CHUNK_TOKENS = 2000
# Another rule of cutting needs another number: the identity is part of what decides whether a file is read again.
RULES_VERSION = 1


@dataclass(frozen=True, slots=True)
class Chunk:
    """A slice of a text.

    Attributes:
        chunk_no: Place among the chunks of its text, from 0.
        text: ``text[char_start:char_end]`` of the whole; begins and ends with a character that is not blank.
        heading_path: Titles above the chunk, outermost first; where it spans sections, the titles they have in common.
        char_start: Where it begins, in characters.
        char_end: Where it ends, in characters (exclusive).
        line: Line on which it begins, from 1.
        token_count: Tokens of ``text``, counted by itself.
        chunk_type: ``code`` when it lies inside one fenced code block, else ``text``.
    """

    chunk_no: int
    text: str
    heading_path: tuple[str, ...]
    char_start: int
    char_end: int
    line: int
    token_count: int
    chunk_type: Literal["text", "code"] = "text"


class TokenCounter(Protocol):
    """Whatever counts tokens: a model's tokenizer, or words."""

    @property
    def name(self) -> str:
        """Name and version of the way of counting; equal names give equal counts."""
        ...

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Start and end of every token in characters: (t, 2), both columns ascending."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of n texts: (n,)."""
        ...


class WordCounter:
    """Counts Unicode words (Annex 29): the counter where no model brings one."""

    name = "unicode-words/1"

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Finds where the words of a text stand.

        Args:
            text: The text.

        Returns:
            (w, 2) start and end in characters.

        Raises:
            ValueError: The text holds a lone surrogate.
        """
        return _core.word_offsets(text)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Counts words.

        Args:
            texts: n texts.

        Returns:
            (n,).

        Raises:
            ValueError: A text holds a lone surrogate.
        """
        return np.array([len(_core.word_offsets(text)) for text in texts], dtype=np.int64)


class Chunker:
    """Cuts texts into chunks.

    Args:
        count: Counts the tokens.
        chunk_tokens: Most tokens of a chunk, 16 to 2,000 (200 to 2,000 are sensible for retrieval).
        overlap_tokens: Most tokens that neighbours of one section share, below half of `chunk_tokens`.
        min_tokens: Smaller sections are joined with the next one where both fit; at most half of `chunk_tokens`. By
            default 32, or a quarter of `chunk_tokens` where that is less.

    Raises:
        ConfigurationError: A number is out of its range.
    """

    def __init__(
        self,
        count: TokenCounter,
        chunk_tokens: int = DEFAULT_CHUNK_TOKENS,
        overlap_tokens: int = DEFAULT_OVERLAP_TOKENS,
        min_tokens: int | None = None,
    ) -> None:
        _check_range("chunk_tokens", chunk_tokens, LEAST_CHUNK_TOKENS, MOST_CHUNK_TOKENS)
        _check_range("overlap_tokens", overlap_tokens, 0, (chunk_tokens - 1) // 2)
        if min_tokens is None:
            min_tokens = min(DEFAULT_MIN_TOKENS, chunk_tokens // 4)
        _check_range("min_tokens", min_tokens, 0, chunk_tokens // 2)
        self._count = count
        self.chunk_tokens = chunk_tokens
        self.overlap_tokens = overlap_tokens
        self.min_tokens = min_tokens

    @property
    def identity(self) -> str:
        """One line that is equal for chunkers that cut alike."""
        bounds = f"{self.chunk_tokens}/{self.overlap_tokens}/{self.min_tokens}"
        return f"chunks/{RULES_VERSION}/{bounds}/{self._count.name}"

    def chunk(self, text: str, *, markdown: bool = True) -> list[Chunk]:
        """Cuts one text.

        Args:
            text: The text.
            markdown: Whether headings and fences are recognised; without, the text is one section.

        Returns:
            The chunks in the order of the text. Together they hold every character that is not blank; each has at most
            `chunk_tokens` tokens (a single character may have more) and at most 128 KiB.

        Raises:
            ValidationError: The text is not a str or holds a lone surrogate.
        """
        _check_text(text)
        if not text or text.isspace():
            return []
        finished: list[Chunk] = []
        pending = self._split(text, self.chunk_tokens, markdown=markdown)
        # Ends: a chunk that is cut again gives strictly shorter ones, and one character is never cut.
        while pending:
            counts = self._count.count_tokens([chunk.text for chunk in pending])
            counted = [replace(chunk, token_count=n) for chunk, n in zip(pending, counts.tolist(), strict=True)]
            pending = []
            for chunk in counted:
                smaller = self._split_again(chunk) if chunk.token_count > self.chunk_tokens else []
                if smaller:
                    pending += smaller
                else:
                    finished.append(chunk)
        finished.sort(key=lambda chunk: chunk.char_start)
        return [replace(chunk, chunk_no=number) for number, chunk in enumerate(finished)]

    def _split(self, text: str, max_tokens: int, *, markdown: bool) -> list[Chunk]:
        found = _core.split_text(
            text,
            self._count.token_offsets(text),
            max_tokens=max_tokens,
            # A smaller bound takes its share of the overlap, which so stays below its half.
            overlap_tokens=self.overlap_tokens * max_tokens // self.chunk_tokens,
            min_tokens=self.min_tokens * max_tokens // self.chunk_tokens,
            markdown=markdown,
            max_bytes=MAX_CHUNK_BYTES,
        )
        rows = zip(
            found.starts.tolist(),
            found.ends.tolist(),
            found.lines.tolist(),
            found.token_counts.tolist(),
            found.code.tolist(),
            found.headings,
            strict=True,
        )
        return [
            Chunk(number, text[start:end], path, start, end, line, tokens, "code" if code else "text")
            for number, (start, end, line, tokens, code, path) in enumerate(rows)
        ]

    def _split_again(self, chunk: Chunk) -> list[Chunk]:
        """Two thirds leave room for overlap and give two pieces of like size, where a full one would leave a crumb."""
        if len(chunk.text) == 1:
            return []
        bound = max(1, min(self.chunk_tokens, chunk.token_count) * 2 // 3)
        smaller = self._split(chunk.text, bound, markdown=False)
        if len(smaller) == 1:
            return []
        return [
            replace(
                piece,
                heading_path=chunk.heading_path,
                char_start=chunk.char_start + piece.char_start,
                char_end=chunk.char_start + piece.char_end,
                line=chunk.line + piece.line - 1,
                chunk_type=chunk.chunk_type,
            )
            for piece in smaller
        ]


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigurationError(f"{name} must be a whole number from {least:,} to {most:,}; got {value!r}")


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise ValidationError([FieldError(-1, None, "text", "wrong_type", "str", type(text).__name__)])
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = f"character {error.start}"
        raise ValidationError([FieldError(-1, None, "text", "lone_surrogate", None, place)]) from None
