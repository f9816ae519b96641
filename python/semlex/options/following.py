"""Options of a followed table: which columns are read, and how changes are noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypedDict

from semlex.options.declare import Option
from semlex.types.followed import DEFAULT_KEYS_EVERY_SECONDS, DEFAULT_OVERLAP_SECONDS, Changes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_SECONDS = 10 * 365 * 86_400
# A definition is read with every run.
MAX_COLUMNS = 100


def _columns(text: str) -> Option:
    return Option(text=text, form="texts", maximum=MAX_COLUMNS)


def _seconds(text: str, default: float) -> Option:
    return Option(text=f"Seconds {text}. Default: {default:g}.", minimum=0, maximum=MAX_SECONDS)


class TableOptions(TypedDict, total=False):
    """Options of `Tables.follow` and `Tables.change`."""

    key: Annotated[str | Sequence[str] | None, _columns("Columns that identify a row. Default: the primary key.")]
    text: Annotated[
        str | Sequence[str],
        _columns("Columns, or SQL expressions over columns, whose texts are searched, in this order."),
    ]
    heading: Annotated[str | None, Option(text="Column of the title, which heads every chunk of the row.")]
    formats: Annotated[
        Mapping[str, str],
        Option(text="Item of text -> format that it is written in, such as markdown or html.", offered=False),
    ]
    metadata: Annotated[str | Sequence[str], _columns("Columns that are copied to the metadata of chunks.")]
    live: Annotated[
        str | Sequence[str], _columns("Columns that filters (@row.NAME) and hits read from the table itself.")
    ]
    changes: Annotated[
        Changes | None,
        Option(
            text="How changes are noticed: 'trigger' writes keys into a queue, 'column' reads rows by updated_at, "
            "'comparison' compares hashes. Default: column with updated_at, else comparison."
        ),
    ]
    updated_at: Annotated[str | None, Option(text="Column with the time of the last change of a row.")]
    overlap: Annotated[
        float,
        _seconds(
            "before the newest change for which rows are read again, for transactions that commit late",
            DEFAULT_OVERLAP_SECONDS,
        ),
    ]
    keys_every: Annotated[
        float,
        _seconds(
            "after which a run compares all keys, which finds deleted rows, or with 'trigger' all rows",
            DEFAULT_KEYS_EVERY_SECONDS,
        ),
    ]
    schema: Annotated[str | None, Option(text="Schema of the table. Default: public.")]
    source_database: Annotated[
        str | None,
        Option(
            text="Address of the table's database without a password, or env:NAME for a variable that holds one. "
            "Default: the database of the collection."
        ),
    ]
