"""Followed tables: which columns are read, how changes are noticed, and what a sync did."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

Changes = Literal["comparison", "column", "trigger"]
KeyKind = Literal["int", "uuid", "text"]
# The key of a row in its own type; of a key of several columns a tuple.
KeyPart = int | str | UUID
RowKey = KeyPart | tuple[KeyPart, ...]
DEFAULT_OVERLAP_SECONDS = 300.0
DEFAULT_KEYS_EVERY_SECONDS = 3_600.0
# Between two comparisons by a worker.
DEFAULT_COMPARE_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedTable:
    """The definition of a followed table: what a collection reads of it, and how it notices changes.

    Attributes:
        name: Its name in the collection, by default the table's. A row's ``source_document`` is ``NAME/KEY``.
        schema, table: The table, partitioned table, view or materialised view.
        source_database: Connection string without a password, or ``env:NAME`` for an environment variable that holds
            one; None: the database of the collection.
        key: Columns that identify a row.
        key_kinds: Types of the key's columns: ``int``, ``uuid`` or ``text``.
        text: Columns or SQL expressions over columns whose texts are searched, in order.
        heading: Column with the title of the row, which becomes the heading of its chunks; None: no title.
        formats: Text column -> format of its texts: ``markdown``, ``html``, …; other columns are plain text.
        metadata: Columns that are copied to the metadata of chunks.
        live: Columns that filters and hits read from the table itself.
        changes: How changes are noticed: ``comparison``, ``column`` or ``trigger``.
        updated_at: With ``column``: the column with the time of the last change of a row; else None.
        overlap: With ``column``: rows changed up to this many seconds before the newest change are read again, because
            a transaction may commit late.
        keys_every: Seconds after which a sync compares all keys, which finds deleted rows (``column``), or all rows,
            which finds changes that no trigger noticed (``trigger``).
    """

    name: str
    schema: str
    table: str
    key: tuple[str, ...]
    key_kinds: tuple[KeyKind, ...]
    text: tuple[str, ...]
    source_database: str | None = None
    heading: str | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    metadata: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    changes: Changes = "comparison"
    updated_at: str | None = None
    overlap: float = DEFAULT_OVERLAP_SECONDS
    keys_every: float = DEFAULT_KEYS_EVERY_SECONDS


def stored_definition(stored: Mapping[str, Any]) -> FollowedTable:
    """Return the definition in a stored JSON object; keys written by a later version are ignored."""
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()
    }
    return FollowedTable(**{one.name: values[one.name] for one in fields(FollowedTable) if one.name in values})


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProblem:
    """A row that could not be stored; it is tried again when it changes, and at `due_at`.

    Attributes:
        key: The key as text.
        code: Name of the error's class, or code of the broken rule.
        message: The error, without texts of the row.
        attempts: How often storing it failed.
        due_at: When it is tried again, in UTC.
    """

    key: str
    code: str
    message: str
    attempts: int = 1
    due_at: datetime | None = None


@dataclass(slots=True, kw_only=True)
class TableSync:
    """What a sync of a followed table did.

    Attributes:
        name: Name of the followed table.
        changes: How changes were noticed.
        added, changed: Rows whose text was stored for the first time or again.
        refreshed: Rows of which only metadata changed; nothing was embedded or analysed.
        unchanged: Rows that were compared and had not changed; None if not all rows were compared.
        deleted: Rows that are gone from the table.
        failed: Number of rows that could not be stored.
        chunks, embedded: Chunks that were written, and how many of them were embedded.
        seconds: Duration of the run.
        dry_run: Whether nothing was written.
        problems: Rows that could not be stored, the first 100.
        warnings: What else needs attention.
    """

    name: str
    changes: Changes
    added: int = 0
    changed: int = 0
    refreshed: int = 0
    unchanged: int | None = None
    deleted: int = 0
    failed: int = 0
    chunks: int = 0
    embedded: int = 0
    seconds: float = 0.0
    dry_run: bool = False
    problems: list[RowProblem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedStatus:
    """A followed table, and how up to date the collection is.

    Attributes:
        table: Its definition.
        rows: Rows that are in the collection.
        waiting: Noticed changes that are not stored yet.
        failed: Rows that could not be stored.
        problems: The first 100 failed rows.
        last_run: Counts of the last run (`TableSync` as a mapping), or None.
        synced_at: When the last run ended, in UTC.
        error: Why the last run failed, or None.
    """

    table: FollowedTable
    rows: int
    waiting: int
    failed: int = 0
    problems: Sequence[RowProblem] = ()
    last_run: Mapping[str, Any] | None = None
    synced_at: datetime | None = None
    error: str | None = None
