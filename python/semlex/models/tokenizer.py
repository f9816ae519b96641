"""Reads a model's own tokenizer from ``tokenizer.json``, and counts tokens: with it, or as Unicode words."""

from __future__ import annotations

import hashlib
import logging
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from semlex import _core
from semlex.errors import ConfigurationError, MissingExtraError, ModelError
from semlex.forks import new_lock
from semlex.models.files import ModelFolder, find_cached
from semlex.models.model_names import leads_to
from semlex.options.collection import UNICODE_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from numpy.typing import NDArray


logger = logging.getLogger(__name__)
Opened = TypeVar("Opened")

TOKENIZER_FILE = "tokenizer.json"
# Prefix of the names of counters that are named by the hash of a file.
FILE_COUNTER = "tokenizer/"
# Maximum size of a file that the user names, which may be the wrong one. The largest vocabularies take 40 MB.
MAX_BYTES = 256 * 1024 * 1024
# Texts in one call of the tokenizers library: its encodings take many times the memory of the ids that are kept.
TEXTS_PER_CALL = 256


@dataclass(frozen=True, slots=True)
class TokenRows:
    """Token ids of many rows in one array."""

    ids: NDArray[np.int64]  # (t,) int64, the rows one behind the other
    offsets: NDArray[np.int64]  # (n + 1,) int64; row i is ids[offsets[i]:offsets[i + 1]]
    cut: NDArray[np.int64]  # numbers of the rows that lost tokens, ascending

    @classmethod
    def of(cls, rows: Sequence[NDArray[np.int64]], cut: Sequence[int] = ()) -> TokenRows:
        """Join rows of separate arrays."""
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
        """Return the number of tokens of each row."""
        return np.diff(self.offsets)

    def select(self, rows: NDArray[np.int64]) -> TokenRows:
        """Return the rows with these numbers, in this order; the result does not say which rows were cut."""
        return TokenRows.of([self[int(row)] for row in rows])


# The Rust core encodes for files like Qwen's and Llama 2's, the tokenizers library for all others; tests check that
# both agree. transformers is not used, because it rebuilds parts of a file and has dropped end tokens. Nothing is added
# to texts here; callers add the tokens that their model needs.
class TextTokenizer(ABC):
    """Token ids, counts and offsets of texts. Safe for several threads. `engine`: which encoder is used, and why."""

    engine = "rust"

    def __init__(self, tokenizer: Any, name: str) -> None:
        self.counter_name = name
        self._tokenizer = tokenizer

    @abstractmethod
    def token_id(self, token: str) -> int | None:
        """Return the id of a token, or None."""

    @abstractmethod
    def frame(self) -> tuple[list[int], list[int]]:
        """Return the ids that the file's post-processor adds before and after a text."""

    @abstractmethod
    def read_special_tokens_as_text(self) -> None:
        """From now on, read special tokens inside texts as ordinary text, so that no text can forge a prompt."""

    def ids(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return the token ids of each text in an array."""
        rows = self.encode(texts)
        return [rows[row] for row in range(len(rows))]

    @abstractmethod
    def encode(
        self, texts: Sequence[str], *, head: Sequence[int] = (), tail: Sequence[int] = (), most: int | None = None
    ) -> TokenRows:
        """Return each text's token ids between the ids `head` and `tail`; a text of more than `most` tokens is cut."""

    @abstractmethod
    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text."""

    @abstractmethod
    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Return (t, 2) start and end of tokens, in characters of the given text, both columns ascending."""


class _CoreTokenizer(TextTokenizer):
    _special_as_text = False

    def token_id(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_id(token)
        return found

    def read_special_tokens_as_text(self) -> None:
        self._special_as_text = True

    def encode(
        self, texts: Sequence[str], *, head: Sequence[int] = (), tail: Sequence[int] = (), most: int | None = None
    ) -> TokenRows:
        special = self._special_as_text
        ends = {"head": list(head), "tail": list(tail)}
        return TokenRows(*self._tokenizer.encode(list(texts), **ends, most=most, special_tokens_as_text=special))

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self._tokenizer.count(list(texts), special_tokens_as_text=self._special_as_text)
        return counts

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        offsets: NDArray[np.int64] = self._tokenizer.offsets(text, special_tokens_as_text=self._special_as_text)
        return offsets

    def frame(self) -> tuple[list[int], list[int]]:
        prefix, suffix = self._tokenizer.special_prefix_suffix
        return list(prefix), list(suffix)


class _LibraryTokenizer(TextTokenizer):
    """The tokenizers library, which reads files of every kind."""

    def __init__(self, tokenizer: Any, name: str, reason: str) -> None:
        super().__init__(tokenizer, name)
        self.engine = f"tokenizers: {reason}"
        tokenizer.no_padding()
        tokenizer.no_truncation()

    def token_id(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def read_special_tokens_as_text(self) -> None:
        self._tokenizer.encode_special_tokens = True

    def encode(
        self, texts: Sequence[str], *, head: Sequence[int] = (), tail: Sequence[int] = (), most: int | None = None
    ) -> TokenRows:
        front, back = np.array(head, dtype=np.int64), np.array(tail, dtype=np.int64)
        bodies = list(self._bodies(texts))
        cut = [] if most is None else [row for row, body in enumerate(bodies) if body.size > most]
        return TokenRows.of([np.concatenate([front, body[:most], back]) for body in bodies], cut)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        return np.array([body.size for body in self._bodies(texts)], dtype=np.int64)

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        pairs = self._tokenizer.encode(text, add_special_tokens=False).offsets
        # A normaliser that reorders combining marks can step back by a character; callers search the columns.
        return np.maximum.accumulate(np.array(pairs, dtype=np.int64).reshape(-1, 2), axis=0)

    def frame(self) -> tuple[list[int], list[int]]:
        bare, closed = (list(self._tokenizer.encode("a", add_special_tokens=own).ids) for own in (False, True))
        places = range(len(closed) - len(bare) + 1)
        start = next((place for place in places if closed[place : place + len(bare)] == bare), None)
        if start is None:  # the post-processor changes the text's own ids
            return [], closed
        return closed[:start], closed[start + len(bare) :]

    def _bodies(self, texts: Sequence[str]) -> Iterator[NDArray[np.int64]]:
        for start in range(0, len(texts), TEXTS_PER_CALL):
            part = list(texts[start : start + TEXTS_PER_CALL])
            for encoding in self._tokenizer.encode_batch_fast(part, add_special_tokens=False):
                yield np.array(encoding.ids, dtype=np.int64)


def text_tokenizer(tokenizer: Any, name: str, reason: str = "as given") -> TextTokenizer:
    """Wrap a tokenizer of the Rust core, or of the tokenizers library with the reason why it is used."""
    is_core = isinstance(tokenizer, _core.BpeTokenizer)
    return _CoreTokenizer(tokenizer, name) if is_core else _LibraryTokenizer(tokenizer, name, reason)


def open_tokenizer(folder: ModelFolder) -> TextTokenizer:
    """Read the tokenizer in a model's folder."""
    return _open(folder, lambda content: _read(content, folder.name))


def open_pair_tokenizer(folder: ModelFolder) -> tuple[TextTokenizer, list[tuple[int, int, int | None]]]:
    """Read the tokenizer of a model that reads pairs, and how it joins the texts ``a`` and ``b``."""
    # Each token of that pair has its id, its type, and 0 or 1 for the text that it belongs to, or None.

    def read(content: bytes) -> tuple[TextTokenizer, list[tuple[int, int, int | None]]]:
        library = _library_tokenizer(content, folder.name, "it joins pairs")
        tokenizer = text_tokenizer(library, _name_of(content))  # which switches padding off
        joined = library.encode("a", "b")
        return tokenizer, list(zip(joined.ids, joined.type_ids, joined.sequence_ids, strict=True))

    return _open(folder, read)


def _open(folder: ModelFolder, read: Callable[[bytes], Opened]) -> Opened:
    path = folder.path / TOKENIZER_FILE
    if not path.is_file():
        raise ModelError(f"{folder.name} has no {TOKENIZER_FILE} in {folder.path}; fetch the model again")
    try:
        return read(path.read_bytes())
    except ValueError as error:
        raise ModelError(f"{path} cannot be read as a tokenizer; fetch the model again") from error


def open_tokenizer_file(path: Path) -> TextTokenizer:
    """Read a tokenizer file that the user named."""
    remedy = f"name the {TOKENIZER_FILE} that came with the model, or name no tokenizer, so that words are counted"
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # the second where a name holds a zero byte
        reason = getattr(error, "strerror", "not a path")
        raise ConfigurationError(f"the tokenizer {str(path)!r} cannot be read ({reason}): {remedy}") from error
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"{path} is larger than {MAX_BYTES >> 20} MiB, too large for a tokenizer: {remedy}")
    try:
        return _read(content, str(path))
    except ValueError as error:
        raise ConfigurationError(f"{path} is not in the form of a {TOKENIZER_FILE}: {remedy}") from error


def _read(content: bytes, what: str) -> TextTokenizer:
    try:
        return text_tokenizer(_core.BpeTokenizer(content), _name_of(content))
    except NotImplementedError as error:
        reason = str(error)
    tokenizer = _library_tokenizer(content, what, reason)
    logger.info("texts for %s are encoded by the tokenizers library, which is several times slower: %s", what, reason)
    return text_tokenizer(tokenizer, _name_of(content), reason)


def _library_tokenizer(content: bytes, what: str, reason: str) -> Any:
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 (not in the base install)
    except ImportError as error:
        raise MissingExtraError("tokenizers", "local", f"the tokenizer of {what} ({reason})") from error
    try:
        return Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises a bare Exception
        raise ValueError(str(error)) from error


def _name_of(content: bytes) -> str:
    return f"{FILE_COUNTER}{hashlib.sha256(content).hexdigest()[:16]}"


class TokenCounter(Protocol):
    """Counts tokens: an embedder, a tokenizer, or words."""

    @property
    def counter_name(self) -> str:
        """Return a name for how tokens are counted; counters of the same name give the same counts."""
        ...

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Return (tokens, 2) starts and ends in characters, ascending; tokens within one character have equal rows."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of tokens of each text."""
        ...


# Measured on pieces of 300 words with tokenizers of OpenAI's kind: English manuals have 1.6 to 1.9 tokens a word, other
# European languages 2 to 3, source code 2.3 to 2.8, Chinese 1.2 to 1.5.
TOKENS_PER_WORD = 2


class WordCounter:
    """Counts Unicode words (Annex 29) instead of tokens. A lone surrogate raises ``ValueError``."""

    counter_name = UNICODE_WORDS

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Return start and end of every word in characters: (words, 2)."""
        return _core.word_offsets(text)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of words of each text."""
        return _core.count_words(texts)


class TokenEstimate(WordCounter):
    """Estimates a model's tokens: each Unicode word counts as `TOKENS_PER_WORD`."""

    counter_name = f"{TOKENS_PER_WORD}*{UNICODE_WORDS}"

    def token_offsets(self, text: str) -> NDArray[np.int64]:
        """Return start and end of every word in characters, each `TOKENS_PER_WORD` times in succession."""
        return np.repeat(super().token_offsets(text), TOKENS_PER_WORD, axis=0)

    def count_tokens(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of words of each text, times `TOKENS_PER_WORD`."""
        return super().count_tokens(texts) * TOKENS_PER_WORD


def counter_of_words(name: str) -> WordCounter | None:
    """Return the counter of this name if it counts words, else None."""
    return next((counter for counter in (WordCounter(), TokenEstimate()) if counter.counter_name == name), None)


def find_tokenizer(model: str, given: str | PathLike[str] | None = None) -> TokenCounter:
    """Return the token counter for a model on a server, without using the network."""
    if given is not None:
        return given_tokenizer(given)
    folder = find_cached(model) if "/" in model else None
    return TokenEstimate() if folder is None else tokenizer_in(folder)


def given_tokenizer(given: str | PathLike[str]) -> TextTokenizer:
    """Open a tokenizer that the user named: a file, its folder, or a hub id in the local cache."""
    path = Path(given).expanduser()
    folder = path if os.path.isdir(path) else None  # noqa: PTH112 - says False where Path would raise
    is_there = os.path.exists(path)  # noqa: PTH110 - as above
    if folder is None and not is_there and leads_to(str(given)) is None:
        cached = find_cached(str(given))
        folder = None if cached is None else cached.path
    return open_tokenizer_file(path if folder is None else folder / TOKENIZER_FILE)


def tokenizer_in(folder: ModelFolder) -> TokenCounter:
    """Return the tokenizer of a model's folder, or an estimate by words if none can be read."""
    if not (folder.path / TOKENIZER_FILE).is_file():
        return TokenEstimate()
    try:
        return open_tokenizer(folder)
    except MissingExtraError:  # a kind that the Rust core does not read
        return TokenEstimate()


# A warning is logged for the first cut text, and again at this many times the number of the last warning: up to six for
# 100,000 texts, each with the number so far.
LOGGED_AGAIN = 10


class CutTexts:
    """Counts texts that were longer than the model reads. Safe for several threads."""

    def __init__(self, what: str, model: str) -> None:
        self.count = 0
        self._what, self._model = what, model
        self._read, self._said = 0, 0
        self._lock = new_lock()

    def add(self, read: int, cut: int, limit: str) -> None:
        """Add to the counts; warn at the first cut text, then at ten times the number of the last warning."""
        with self._lock:
            self._read += read
            self.count += cut
            if self.count < max(1, self._said * LOGGED_AGAIN):
                return
            self._said = self.count
            found = f"{self.count} of {self._read}"
        logger.warning("%s %s for %s so far did not fit into %s and were cut", found, self._what, self._model, limit)
