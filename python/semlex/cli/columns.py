"""The columns that ``--fields`` chooses: keys of the JSON objects, or tab-separated values with a header."""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from semlex.cli.terminal import UNSAFE, inform, messages, one_line
from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN_NAMES = 12
_MISSING = object()


def json_text(value: object) -> str:
    """A value as JSON on one line; control characters are escaped."""
    text = json.dumps(value, ensure_ascii=False, default=_plain)
    return UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, (datetime, date)) else str(value)


def value_at(value: Any, path: str) -> Any:
    """What stands at a path, ``legs.vector`` or ``heading_path.0``; of objects in a list, that of each."""
    if not path:
        return value
    first, _, rest = path.partition(".")
    if isinstance(value, dict):
        if path in value:
            return value[path]
        return value_at(value[first], rest) if first in value else _MISSING
    if isinstance(value, (list, tuple)):
        if first.isdigit():
            return value_at(value[int(first)], rest) if int(first) < len(value) else None
        found = [one for one in (value_at(entry, path) for entry in value) if one is not _MISSING]
        return found if found or not value else _MISSING
    return _MISSING


def cell(value: object) -> str:
    """A value as a cell of a line: texts on one line, nothing for None, JSON for lists and objects."""
    if value is None or value is _MISSING:
        return ""
    return one_line(value) if isinstance(value, str) else json_text(value)


@dataclass(slots=True)
class Columns:
    """Which keys are shown, and what was seen of them.

    A line is shown when it has all of them, so that of hits and their summary only those are shown that were meant.

    Attributes:
        names: Keys, with dots for keys inside objects.
        as_json: Whether objects are printed, in place of tab-separated values.
        header: Whether the first line of values has the names.
    """

    names: tuple[str, ...]
    as_json: bool
    header: bool
    _shown: int = 0
    _has_rows: bool = False
    _keys: dict[str, None] = field(default_factory=dict)
    _met: set[str] = field(default_factory=set)

    def lines(self, value: dict[str, Any]) -> Iterator[str]:
        """What is printed of an object."""
        self._keys |= dict.fromkeys(value)
        # How many there were of something is said where there was nothing, too.
        self._has_rows |= value.get("type") != "summary"
        if any(name not in value and name.partition(".")[0] not in value for name in self.names):
            for warning in value.get("warnings") or ():
                messages.print(f"note: {one_line(str(warning))}", markup=False)
            if value.get("next_cursor"):
                inform(f"next page: semlex search --after {value['next_cursor']}")
            return
        found = {name: value_at(value, name) for name in self.names}
        self._met |= {name for name, one in found.items() if one is not _MISSING}
        self._nested(value)
        if self.as_json:
            yield json_text({name: None if one is _MISSING else one for name, one in found.items()})
        else:
            yield from self._header()
            yield "\t".join(map(cell, found.values()))
        self._shown += 1

    def _header(self) -> Iterator[str]:
        if self.header and not self.as_json and not self._shown:
            yield "\t".join(self.names)

    def _nested(self, value: dict[str, Any]) -> None:
        for name in self.names:
            parent, dot, _ = name.rpartition(".")
            inside = value_at(value, parent) if dot else None
            if isinstance(inside, dict):
                self._keys |= dict.fromkeys(f"{parent}.{key}" for key in inside)

    def end(self) -> Iterator[str]:
        """What is printed at the end."""
        if self._has_rows and not self._shown:
            unknown = [name for name in self.names if name.partition(".")[0] not in self._keys]
            raise ConfigurationError(self._unknown(unknown) if unknown else self._apart())
        if self._shown and (never := [name for name in self.names if name not in self._met]):
            messages.print(f"note: {self._unknown(never)}", markup=False)
        yield from self._header()

    def _unknown(self, names: list[str]) -> str:
        told = []
        for name in names:
            near = get_close_matches(name, self._keys, n=3)
            told.append(f"nothing here has the field {name!a}" + (f": did you mean {', '.join(near)}?" if near else ""))
        keys = list(self._keys)
        rest = f", and {len(keys) - SHOWN_NAMES:,} more (--json shows all)" if len(keys) > SHOWN_NAMES else ""
        return one_line(f"--fields: {'; '.join(told)}; there are {', '.join(keys[:SHOWN_NAMES])}{rest}")

    def _apart(self) -> str:
        return f"--fields: {', '.join(self.names)} stand on different lines of --json: choose those of one kind"


_chosen: ContextVar[Columns | None] = ContextVar("columns", default=None)


def chosen_columns() -> Columns | None:
    """What ``--fields`` has chosen; None where it was not given."""
    return _chosen.get()


@contextmanager
def choosing(names: str | None, *, as_json: bool, header: bool) -> Iterator[Columns | None]:
    """Lets `chosen_columns` be these meanwhile."""
    if names is None:
        yield None
        return
    listed = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not listed:
        raise ConfigurationError("--fields names keys of --json, with commas between: --fields id,source_document")
    columns = Columns(listed, as_json, header)
    token = _chosen.set(columns)
    try:
        yield columns
    finally:
        _chosen.reset(token)
