"""What a database stores of a text: everything but NUL, and halves of surrogate pairs, which are no characters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from semlex import _core
from semlex.errors import FieldError
from semlex.ingest.loaders.base import LoadError
from semlex.validation import kind_errors, refuse

if TYPE_CHECKING:
    from semlex.ingest.loaders.base import LoadedDocument, LoadOptions

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_STRUCTURE = re.compile("plain|markdown|restructuredtext|code:.*", re.DOTALL)
_CODES = frozenset({"nul", "lone_surrogate"})


def storable(value: Any, where: str, options: LoadOptions) -> tuple[Any, int]:
    """A JSON value as it can be stored."""
    repaired, count = _repaired(value)
    if count and options.on_bad_text != "repair":
        raise _refusal(f"{where}: a text")
    return repaired, count


def repaired_document(loaded: LoadedDocument) -> LoadedDocument:
    """A document with U+FFFD for every character that cannot be stored; all others keep their places."""
    text, count = _repaired(loaded.text)
    title, more = _repaired(loaded.title)
    metadata, others = _repaired(dict(loaded.metadata))
    count += more + others
    records = []
    for record in loaded.records:
        beside, found = _repaired([dict(record.metadata), list(record.titles), record.summary])
        count += found
        changed = replace(record, metadata=beside[0], titles=beside[1], summary=beside[2]) if found else record
        records.append(changed)
    if not count:
        return loaded
    return replace(loaded, text=text, title=title, metadata=metadata, records=records, repaired=loaded.repaired + count)


def storable_document(loaded: LoadedDocument, options: LoadOptions) -> LoadedDocument:
    """What a loader has made, as it can be stored."""
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
    raise LoadError("loader_failed", f"its loader is at fault: {wrong}")


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


def _repaired(value: Any) -> tuple[Any, int]:
    if isinstance(value, str):
        return (value, 0) if _is_storable(value) else _UNSTORABLE.subn("\ufffd", value)
    if isinstance(value, list):
        pairs = [_repaired(item) for item in value]
        return [item for item, _ in pairs], sum(count for _, count in pairs)
    if isinstance(value, Mapping):
        pairs = [_repaired([name, item]) for name, item in value.items()]
        return {name: item for (name, item), _ in pairs}, sum(count for _, count in pairs)
    return value, 0


def _is_storable(text: str) -> bool:
    return "\0" not in text and (text.isascii() or not _UNSTORABLE.search(text))
