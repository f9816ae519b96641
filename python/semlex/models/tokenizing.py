"""A model's own tokenizer, read from ``tokenizer.json`` as it is.

The file is given to the tokenizers library directly. transformers rebuilds some of its parts from other settings, and
has dropped end tokens that way without a word; here nothing is added to a text, and callers add what their model needs.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.errors import FieldError, ModelError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from semlex.models.weights import ModelFolder

# Texts in one call of the tokenizer: its encodings take many times the memory of the ids that are kept.
TEXTS_PER_CALL = 256


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Token ids of many rows in one array.

    Attributes:
        ids: (t,) int64, the rows one behind the other.
        offsets: (n + 1,) int64; row i is ``ids[offsets[i]:offsets[i + 1]]``.
        cut: Numbers of the rows that lost tokens, ascending.
    """

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    cut: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[NDArray[np.int64]], cut: Sequence[int] = ()) -> TokenRows:
        """Joins rows that stand in arrays of their own."""
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([row.size for row in rows], out=offsets[1:])
        ids = np.concatenate([np.empty(0, dtype=np.int64), *rows])
        return cls(ids, offsets, np.array(cut, dtype=np.int64))

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, row: int) -> NDArray[np.int64]:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) tokens of every row."""
        return np.diff(self.offsets)

    def select(self, rows: NDArray[np.int64]) -> TokenRows:
        """The rows of these numbers, in this order; `cut` is left out."""
        return TokenRows.of([self[int(row)] for row in rows])


class TextTokenizer:
    """Token ids, counts and offsets of texts. Safe for several threads.

    Args:
        tokenizer: A `tokenizers.Tokenizer`; its padding and truncation are switched off.
        name: Name of the way of counting.
    """

    def __init__(self, tokenizer: Any, name: str) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.name = name
        self._tokenizer = tokenizer

    def token_id(self, token: str) -> int | None:
        """Looks up one token.

        Args:
            token: The token as the vocabulary spells it.

        Returns:
            Its id, or None when the vocabulary lacks it.
        """
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def end_ids(self) -> list[int]:
        """The ids that the file's own post-processor puts behind a text."""
        bare, closed = (self._tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
        return list(closed[len(bare) :]) if closed[: len(bare)] == bare else list(closed)

    def read_special_tokens_as_text(self) -> None:
        """From now on, a text that spells a special token is ordinary text and cannot forge a prompt."""
        self._tokenizer.encode_special_tokens = True

    def ids(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Encodes texts.

        Args:
            texts: n texts.

        Returns:
            n arrays of token ids.
        """
        rows: list[NDArray[np.int64]] = []
        for start in range(0, len(texts), TEXTS_PER_CALL):
            part = list(texts[start : start + TEXTS_PER_CALL])
            encodings = self._tokenizer.encode_batch_fast(part, add_special_tokens=False)
            rows += [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        return rows

    def encode(
        self, texts: Sequence[str], *, head: Sequence[int] = (), tail: Sequence[int] = (), most: int | None = None
    ) -> TokenRows:
        """Encodes texts between fixed ids.

        Args:
            texts: n texts.
            head: Ids in front of every row.
            tail: Ids behind every row.
            most: Most tokens of a text; a longer one loses its end, before `tail` is put behind it.

        Returns:
            n rows: head, the text's ids, tail.
        """
        front, back = np.array(head, dtype=np.int64), np.array(tail, dtype=np.int64)
        bodies = self.ids(texts)
        cut = [] if most is None else [row for row, body in enumerate(bodies) if body.size > most]
        return TokenRows.of([np.concatenate([front, body[:most], back]) for body in bodies], cut)

    def counts(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Counts tokens.

        Args:
            texts: n texts.

        Returns:
            (n,).
        """
        return np.array([row.size for row in self.ids(texts)], dtype=np.int64)

    def offsets(self, text: str) -> NDArray[np.int64]:
        """Finds where tokens stand.

        Args:
            text: One text.

        Returns:
            (t, 2) start and end in characters of the text as given, both columns ascending.
        """
        pairs = self._tokenizer.encode(text, add_special_tokens=False).offsets
        offsets = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        # A normaliser that reorders combining marks can step back by a character; callers search the columns.
        return np.maximum.accumulate(offsets, axis=0)


def open_tokenizer(folder: ModelFolder) -> TextTokenizer:
    """Reads a model's tokenizer.

    Args:
        folder: The model.

    Returns:
        The tokenizer, named by the SHA-256 of its file, so that all sizes of one family count alike.

    Raises:
        ModelError: The folder has no ``tokenizer.json``, or it cannot be read.
    """
    from tokenizers import Tokenizer  # noqa: PLC0415 (not in the base install)

    path = folder.path / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{folder.name} has no tokenizer.json in {folder.path}; fetch the model again")
    content = path.read_bytes()
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises a bare Exception
        raise ModelError(f"{path} cannot be read as a tokenizer; fetch the model again") from error
    return TextTokenizer(tokenizer, f"tokenizer/{hashlib.sha256(content).hexdigest()[:16]}")


def check_texts(texts: Sequence[str]) -> list[str]:
    """Refuses what no tokenizer can read.

    Args:
        texts: The texts of one call.

    Returns:
        The same texts as a list.

    Raises:
        ValidationError: With every row that is not a str or holds a lone surrogate.
    """
    if isinstance(texts, str):
        raise ValidationError([FieldError(-1, None, "texts", "wrong_type", "sequence of str", "str")])
    rows = list(texts)
    errors = []
    for row, text in enumerate(rows):
        if not isinstance(text, str):
            errors.append(FieldError(row, None, "text", "wrong_type", "str", type(text).__name__))
        elif not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError as error:
                errors.append(FieldError(row, None, "text", "lone_surrogate", None, f"character {error.start}"))
    if errors:
        raise ValidationError(errors)
    return rows
