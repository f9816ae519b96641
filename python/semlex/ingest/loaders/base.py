"""What a loader is: it makes text, with its structure, of the bytes of a file.

A loader of your own is registered with `semlex.register_loader`, or by a package's entry point in the group
``semlex.loaders`` whose object is a loader, or makes one when it is called.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

from semlex.errors import ConfigurationError
from semlex.validation import is_one_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

OnBadText = Literal["error", "repair", "skip"]
# What a loader says of a text that cannot be decoded, or cannot be stored.
BAD_TEXT_CODES = frozenset({"bad_text", "binary", "not_utf8", "not_utf16"})


class LoadError(Exception):
    """A file of which no text can be made; it becomes one line in the report of a run.

    Args:
        code: A short name of what is wrong, such as ``encrypted``.
        message: For people: what is wrong and what helps; no part of the text.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How files are read; the same for all files of a run.

    Attributes:
        text_fields: Of tables and JSON Lines: the fields that are text, joined by blank lines; empty for all texts.
        id_field: Of tables and JSON Lines: the field that names a record, or None.
        detect_encoding: Whether a text that is no UTF-8 is read in the encoding that it most probably has.
        on_bad_text: What becomes of a file with bytes that are no text, or with characters that cannot be stored (NUL,
            half of a surrogate pair): ``error`` reports it, ``repair`` puts U+FFFD for each of them, ``skip`` leaves
            the file out.

    Raises:
        ConfigurationError: `on_bad_text` is none of these.
    """

    text_fields: Sequence[str] = ()
    id_field: str | None = None
    detect_encoding: bool = False
    on_bad_text: OnBadText = "error"

    def __post_init__(self) -> None:
        if not is_one_of(self.on_bad_text, get_args(OnBadText)):
            raise ConfigurationError(f"on_bad_text must be error, repair or skip; got {self.on_bad_text!r:.80}")

    def leaves_out(self, error: LoadError) -> bool:
        """Whether a file with this error is left out, and is no failure."""
        return self.on_bad_text == "skip" and error.code in BAD_TEXT_CODES


@dataclass(frozen=True, slots=True)
class FileBytes:
    """What a file holds.

    Attributes:
        uri: Its path below the root of its source, with ``/``.
        data: Its bytes.
        content_hash: SHA-256 of them, 32 bytes.
        modified_at: When the file was last changed, in UTC.
    """

    uri: str
    data: bytes
    content_hash: bytes
    modified_at: datetime

    @property
    def suffix(self) -> str:
        """What follows the last dot of the name, in lower case; the whole name where there is none."""
        return suffix_of(self.uri)


def suffix_of(uri: str) -> str:
    """What follows the last dot of a name, in lower case; the whole name where there is none."""
    return uri.rpartition("/")[2].lower().rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Record:
    """A part of a text that is cut by itself: a row of a table, a cell of a notebook, a chunk that is one already.

    Attributes:
        start: Where it begins in the text, in characters.
        end: Where it ends (exclusive).
        structure: How its structure is written; None for that of the whole text.
        metadata: JSON values of its chunks, beside those of the document.
        titles: Titles above it, outermost first, instead of headings.
        summary: A short description.
        is_chunk: Whether it stays whole.
    """

    start: int
    end: int
    structure: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    titles: Sequence[str] = ()
    summary: str = ""
    is_chunk: bool = False


@dataclass(frozen=True, slots=True)
class LoadedDocument:
    """The text of a file.

    Attributes:
        text: The text.
        structure: How its structure is written: ``plain`` (not at all), ``markdown``, ``restructuredtext``, or
            ``code:`` with the suffix of such files (``code:py``).
        title: Its title; None to take its first heading of level 1.
        metadata: JSON values that every chunk of it has.
        pages: Where each page begins in the text, in characters, ascending; empty where there are no pages.
        records: Parts that are cut each by itself, ascending; empty to cut the text as a whole. What lies in no record
            is left out.
        encoding: The encoding that was guessed; None where nothing was.
        format: Name of the format, where it is another than the loader's.
        repaired: How many characters of it were put for what was no text.
    """

    text: str
    structure: str = "plain"
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    pages: Sequence[int] = ()
    records: Sequence[Record] = ()
    encoding: str | None = None
    format: str | None = None
    repaired: int = 0


@runtime_checkable
class Loader(Protocol):
    """Makes text of files of one format.

    One that heeds `LoadOptions.text_fields` and `id_field` has an attribute `reads_fields` that is True: where a run
    names others, a file that did not change is read again.
    """

    @property
    def name(self) -> str:
        """Of the format, in lower case; stored with every document."""
        ...

    @property
    def suffixes(self) -> Sequence[str]:
        """Of such files, in lower case, without the dot; a name without a dot (``makefile``) is its own."""
        ...

    @property
    def version(self) -> int:
        """Another number for another way of making text: documents of an older one can be cut anew."""
        ...

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Makes text of a file; called in any thread.

        Raises:
            LoadError: It cannot be read.
        """
        ...
