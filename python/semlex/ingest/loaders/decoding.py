"""Bytes as text."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, NamedTuple

from semlex.ingest.loaders.base import LoadError

if TYPE_CHECKING:
    from semlex.ingest.loaders.base import LoadOptions

# A guess is made from so many bytes, and taken when at most this share of the characters looks out of place in it.
GUESSED_FROM = 256 * 1024
MAX_CHAOS = 0.1
WESTERN = frozenset(
    "àâäáãåæçéèêëíìîïñóòôöõøœúùûüýÿßÀÂÄÁÃÅÆÇÉÈÊËÍÎÏÑÓÔÖØŒÚÛÜ«»…·°€£§©®ªº¿¡\xa0\u2013\u2014\u2018\u2019\u201a\u201c\u201d\u201e"
)
MIN_GUESSED = 32  # bytes; less than that fits many encodings equally well
# Where more of the characters would have to be repaired it is no text with faults: of a program it is about a half, of
# an alphabet in an encoding of its own four fifths.
MAX_REPAIRED = 1 / 3


class Decoded(NamedTuple):
    """A text.

    Attributes:
        text: All of it.
        encoding: The encoding that was guessed; None where nothing was.
        repaired: How many of its characters were put for what is none.
    """

    text: str
    encoding: str | None
    repaired: int = 0


def decode(data: bytes, options: LoadOptions) -> Decoded:
    """The text that bytes are: UTF-8, with or without a mark, or UTF-16 with one.

    Nothing else is guessed unless that is asked for, since a guess that fails is stored as nonsense that no one finds.
    """
    try:
        return _decoded(data, options)
    except LoadError:
        repaired = _repaired(data, options) if options.on_bad_text == "repair" else None
        if repaired is None:
            raise
        return repaired


def _is_wide(data: bytes) -> bool:
    return data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def _repaired(data: bytes, options: LoadOptions) -> Decoded | None:
    """The text with U+FFFD for whatever is none; None where that is too much of it."""
    guess = _guessed(data) if options.detect_encoding and not _is_wide(data) and b"\0" not in data else None
    encoding = "utf-16" if _is_wide(data) else guess or "utf-8"
    text = data.decode(encoding, "replace").removeprefix("\ufeff")
    # The character may stand in the file as well: it is what stays where all that is no text is left out.
    undecodable = text.count("\ufffd") - data.decode(encoding, "ignore").count("\ufffd")
    count = undecodable + text.count("\0")
    return Decoded(text.replace("\0", "\ufffd"), guess, count) if count <= len(text) * MAX_REPAIRED else None


def _decoded(data: bytes, options: LoadOptions) -> Decoded:
    wide = _is_wide(data)
    if not wide and (offset := data.find(b"\0")) >= 0:
        raise LoadError("binary", f"byte {offset} is NUL: no text file")
    encoding = None
    try:
        text = data.decode("utf-16" if wide else "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if wide:
            message = f"byte {error.start} ends the UTF-16 that its first two bytes promise"
            raise LoadError("not_utf16", message) from None
        encoding = _guessed(data)
        if encoding is None:
            message = f"byte {error.start} is not UTF-8, and it is like no other encoding: convert the file with iconv"
            raise LoadError("not_utf8", message) from None
        if not options.detect_encoding:
            raise LoadError(
                "not_utf8",
                f"byte {error.start} is not UTF-8; it looks like {encoding}: convert the file (iconv -f {encoding} -t "
                "UTF-8), or let semlex do so with --detect-encoding (detect_encoding=True)",
            ) from None
        text = _decoded_as(encoding, data)
    if (offset := text.find("\0")) >= 0:
        raise LoadError("binary", f"character {offset} is NUL: no text file")
    return Decoded(text, encoding)


def _decoded_as(encoding: str, data: bytes) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:  # the guess was made from the beginning
        message = f"byte {error.start} is not {encoding}, which the text is most like: convert the file with iconv"
        raise LoadError("not_utf8", message) from None


def _guessed(data: bytes) -> str | None:
    """The most probable encoding, or None where none is probable."""
    if len(data) < MIN_GUESSED:
        return None
    if _is_western(data):
        return "windows-1252"
    from charset_normalizer import from_bytes  # noqa: PLC0415 - takes a moment to load, and is rarely needed

    found = from_bytes(data[:GUESSED_FROM], threshold=MAX_CHAOS).best()
    return None if found is None else found.encoding


def _is_western(data: bytes) -> bool:
    """Whether bytes are mostly ASCII, and all others letters and marks that Western Europe uses, in its encoding.

    The letters of the encodings of other languages with Latin letters stand at the same places; that of Western Europe
    is by far the most frequent one.
    """
    try:
        others = [character for character in data.decode("windows-1252") if not character.isascii()]
    except UnicodeDecodeError:
        return False
    return len(others) <= len(data) / 4 and WESTERN.issuperset(others)
