"""Decode bytes, and refuse or replace characters that Postgres cannot store: NUL and lone surrogates."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from semlex import _core
from semlex.errors import FieldError
from semlex.ingest.loaders.base import LoadedDocument, LoadError, LoadOptions
from semlex.validation import kind_errors, refuse

# Bytes used for detection, and the maximum share of characters that look out of place.
GUESSED_FROM = 256 * 1024
MAX_CHAOS = 0.1
WESTERN = frozenset(
    "àâäáãåæçéèêëíìîïñóòôöõøœúùûüýÿßÀÂÄÁÃÅÆÇÉÈÊËÍÎÏÑÓÔÖØŒÚÛÜ«»…·°€£§©®ªº¿¡\xa0\u2013\u2014\u2018\u2019\u201a\u201c\u201d\u201e"
)
MIN_GUESSED = 32  # bytes; shorter texts fit many encodings equally well
# Above this share of repaired characters a file is not text: programs have about a half, other alphabets four fifths.
MAX_REPAIRED = 1 / 3


class Decoded(NamedTuple):
    """A decoded text, with its encoding and the number of replaced characters."""

    text: str
    encoding: str | None
    repaired: int = 0


def decode(data: bytes, options: LoadOptions) -> Decoded:
    """Decode UTF-8, with or without a byte order mark, or UTF-16 with one; detect other encodings only on request."""
    # A wrong guess is stored as nonsense that nobody finds.
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
    """Return the text with U+FFFD for everything undecodable, or None if too much is undecodable."""
    guess = _guessed(data) if options.detect_encoding and not _is_wide(data) and b"\0" not in data else None
    encoding = "utf-16" if _is_wide(data) else guess or "utf-8"
    text = data.decode(encoding, "replace").removeprefix("\ufeff")
    # The file may contain U+FFFD itself: those remain when undecodable bytes are ignored.
    undecodable = text.count("\ufffd") - data.decode(encoding, "ignore").count("\ufffd")
    count = undecodable + text.count("\0")
    return Decoded(text.replace("\0", "\ufffd"), guess, count) if count <= len(text) * MAX_REPAIRED else None


def _decoded(data: bytes, options: LoadOptions) -> Decoded:
    wide = _is_wide(data)
    if not wide and (offset := data.find(b"\0")) >= 0:
        raise LoadError("binary", f"byte {offset} is NUL: not a text file")
    encoding = None
    try:
        text = data.decode("utf-16" if wide else "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if wide:
            message = f"byte {error.start} is not UTF-16, although the first two bytes are the mark of UTF-16"
            raise LoadError("not_utf16", message) from None
        encoding = _guessed(data)
        if encoding is None:
            message = "and no other encoding was recognised: convert the file with iconv"
            raise LoadError("not_utf8", f"byte {error.start} is not UTF-8, {message}") from None
        if not options.detect_encoding:
            message = f"it looks like {encoding}: convert the file (iconv -f {encoding} -t UTF-8), or let semlex do so"
            raise LoadError(
                "not_utf8",
                f"byte {error.start} is not UTF-8; {message} with --detect-encoding (detect_encoding=True)",
            ) from None
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:  # only the beginning was used for detection
            message = f"byte {error.start} is not {encoding}, the most probable encoding: convert the file with iconv"
            raise LoadError("not_utf8", message) from None
    if (offset := text.find("\0")) >= 0:
        raise LoadError("binary", f"character {offset} is NUL: not a text file")
    return Decoded(text, encoding)


def _guessed(data: bytes) -> str | None:
    """Return the most probable encoding of bytes, or None."""
    if len(data) < MIN_GUESSED:
        return None
    if _is_western(data):
        return "windows-1252"
    try:
        from charset_normalizer import from_bytes  # noqa: PLC0415 - of an extra, and rarely needed
    except ImportError:
        message = "it is not UTF-8. Convert the file with iconv, or let semlex detect its encoding: pip install"
        raise LoadError("not_utf8", f"{message} 'semlex[files]', then --detect-encoding") from None
    found = from_bytes(data[:GUESSED_FROM], threshold=MAX_CHAOS).best()
    return None if found is None else found.encoding


def _is_western(data: bytes) -> bool:
    """Return whether bytes are mostly ASCII, and the others letters and marks of Western Europe."""
    # Encodings of other languages with Latin letters use the same bytes; the Western one is by far the most frequent.
    try:
        others = [character for character in data.decode("windows-1252") if not character.isascii()]
    except UnicodeDecodeError:
        return False
    return len(others) <= len(data) / 4 and WESTERN.issuperset(others)


_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_STRUCTURE = re.compile("plain|markdown|restructuredtext|code:.*", re.DOTALL)
_CODES = frozenset({"nul", "lone_surrogate"})


def storable(value: Any, where: str, options: LoadOptions) -> tuple[Any, int]:
    """Return a JSON value in a form that can be stored, and the number of replaced characters."""
    repaired, count = _replaced(value)
    if count and options.on_bad_text != "repair":
        raise _refusal(f"{where}: a text")
    return repaired, count


def repaired_document(loaded: LoadedDocument) -> LoadedDocument:
    """Return a document with U+FFFD in place of every character that cannot be stored."""
    text, count = _replaced(loaded.text)
    title, more = _replaced(loaded.title)
    metadata, others = _replaced(dict(loaded.metadata))
    count += more + others
    records = []
    for record in loaded.records:
        beside, found = _replaced([dict(record.metadata), list(record.titles), record.summary])
        count += found
        changed = replace(record, metadata=beside[0], titles=beside[1], summary=beside[2]) if found else record
        records.append(changed)
    if not count:
        return loaded
    return replace(loaded, text=text, title=title, metadata=metadata, records=records, repaired=loaded.repaired + count)


def storable_document(loaded: LoadedDocument, options: LoadOptions) -> LoadedDocument:
    """Return a loader's result in a form that can be stored; raise or repair according to `on_bad_text`."""
    errors = _errors(loaded)
    if not errors:
        return loaded
    wrong = next((error for error in errors if error.code not in _CODES or error.field == "format"), None)
    if wrong is None:
        if options.on_bad_text == "repair":
            return repaired_document(loaded)
        raise _refusal(f"its {errors[0].field}")
    if (wrong.field, wrong.code) == ("metadata", "too_long"):
        raise LoadError("metadata_too_large", str(wrong))
    raise LoadError("loader_failed", f"the result of its loader cannot be stored: {wrong}")


def _refusal(what: str) -> LoadError:
    message = f"{what} holds NUL or half of a surrogate pair, which cannot be stored"
    return LoadError("bad_text", f"{message}: remove it, or repair it with --on-bad-text repair (on_bad_text='repair')")


def _errors(loaded: LoadedDocument) -> list[FieldError]:
    titles = [loaded.title or "", *(one for record in loaded.records for one in (*record.titles, record.summary))]
    metadata = [loaded.metadata, *(record.metadata for record in loaded.records)]
    names = [loaded.format or "", loaded.encoding or ""]
    found = []
    for field, kind, rows in (
        ("text", "text", [loaded.text]),
        ("title", "text", titles),
        ("metadata", "jsonb", metadata),
        ("format", "text", names),
    ):
        found += _core.validate_rows([(field, kind, rows, None)])
    errors = [FieldError(-1, *error[1:]) for error in found]
    errors += [error for page in loaded.pages for error in kind_errors("pages", page, int)]
    for structure in (loaded.structure, *(record.structure or "plain" for record in loaded.records)):
        if not _STRUCTURE.fullmatch(structure):
            errors += refuse("structure", "unknown_type", "plain, markdown, restructuredtext or code: with a suffix")
    return errors


def _replaced(value: Any) -> tuple[Any, int]:
    if isinstance(value, str):
        return (value, 0) if _is_storable(value) else _UNSTORABLE.subn("\ufffd", value)
    if isinstance(value, list):
        pairs = [_replaced(item) for item in value]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, Mapping):
        pairs = [_replaced([name, item]) for name, item in value.items()]
        return {name: item for (name, item), _ in pairs}, sum(count for _, count in pairs)
    return value, 0


def _is_storable(text: str) -> bool:
    return "\0" not in text and (text.isascii() or not _UNSTORABLE.search(text))
