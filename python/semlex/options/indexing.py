"""Options of reading files and tables and of jobs: what is read, how it is split, and how changes are noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Literal, TypedDict

from semlex.options.collection import MAX_CHUNK_TOKENS, MIN_CHUNK_TOKENS, max_min, max_overlap
from semlex.options.declare import Option
from semlex.types.followed import DEFAULT_KEYS_EVERY_SECONDS, DEFAULT_OVERLAP_SECONDS, Changes
from semlex.types.jobs import DEFAULT_ATTEMPTS, MAX_ATTEMPTS, MAX_PRIORITY, MAX_UNIQUE_KEY_BYTES

OnBadText = Literal["error", "repair", "skip"]


class ChunkSizes(TypedDict, total=False):
    """Options of how texts are split."""

    chunk_tokens: Annotated[
        int | None,
        Option(
            "Maximum tokens of a chunk. Default: as for the collection's other files.",
            minimum=MIN_CHUNK_TOKENS,
            maximum=MAX_CHUNK_TOKENS,
        ),
    ]
    overlap_tokens: Annotated[
        int | None,
        Option(
            "Maximum tokens that neighbouring chunks share. Default: as for the collection's other files.",
            minimum=0,
            maximum=max_overlap(MAX_CHUNK_TOKENS),
        ),
    ]
    min_tokens: Annotated[
        int | None,
        Option(
            "Sections with fewer tokens are joined with the next one if both fit. Default: as for the "
            "collection's other files.",
            minimum=0,
            maximum=max_min(MAX_CHUNK_TOKENS),
        ),
    ]


class RechunkOptions(ChunkSizes, total=False):
    """Options of `Documents.rechunk`."""

    source: Annotated[str | None, Option("Name of the only source to work on.")]
    dry_run: Annotated[
        bool, Option("Only count the documents that would change, their chunks, and the chunks to be embedded.")
    ]


class JobOptions(TypedDict, total=False):
    """Options of a job."""

    priority: Annotated[
        int, Option("Jobs with a higher priority run first. Default: 0.", minimum=-MAX_PRIORITY, maximum=MAX_PRIORITY)
    ]
    unique_key: Annotated[
        str | None,
        Option(
            "While a job with this key is queued for the collection, that job is returned and no new job is stored.",
            maximum=MAX_UNIQUE_KEY_BYTES,
        ),
    ]
    not_before: Annotated[datetime | None, Option("Earliest start, such as 2026-12-24T18:00+01:00.")]
    max_attempts: Annotated[
        int,
        Option(
            f"Number of attempts before the job fails. Default: {DEFAULT_ATTEMPTS}.", minimum=1, maximum=MAX_ATTEMPTS
        ),
    ]


class FindOptions(TypedDict, total=False):
    """Options of which files are read."""

    source: Annotated[str | None, Option("Name of the new source. Default: the name of its folder.")]
    include: Annotated[
        Sequence[str] | None, Option("Glob patterns of files to read. Default: the usual text formats.", form="texts")
    ]
    exclude: Annotated[Sequence[str], Option("Glob patterns of files and folders to leave out.", form="texts")]
    recursive: Annotated[bool, Option("Read subfolders, too. Default: True.")]


class ReadOptions(TypedDict, total=False):
    """Options of how files are read."""

    text_fields: Annotated[
        Sequence[str],
        Option(
            "For tables and JSON Lines: the fields with text; the others become metadata. Default: all with text.",
            form="texts",
        ),
    ]
    id_field: Annotated[
        str | None, Option("For tables and JSON Lines: the field with the id of a record, unique within a file.")
    ]
    detect_encoding: Annotated[
        bool,
        Option("Read a text that is not UTF-8 in its most probable encoding, instead of reporting it as a problem."),
    ]
    on_bad_text: Annotated[
        OnBadText,
        Option(
            "What happens to a file with bytes that are not text, or characters that cannot be stored: 'error' "
            "reports it, 'repair' puts U+FFFD for each, 'skip' leaves the file out. The report counts them. "
            "Default: error."
        ),
    ]


class FolderKeys(FindOptions, total=False):
    """Options of synchronising documents with folders."""

    keep_deleted: Annotated[bool, Option("Keep documents whose file is gone.")]
    allow_empty: Annotated[
        bool, Option("Delete the documents of a path that is missing or holds no file, instead of refusing the path.")
    ]


MAX_SECONDS = 10 * 365 * 86_400
# A definition is read with every run.
MAX_COLUMNS = 100


def _columns(text: str) -> Option:
    return Option(text, form="texts", maximum=MAX_COLUMNS)


def _seconds(text: str, default: float) -> Option:
    return Option(f"Seconds {text}. Default: {default:g}.", minimum=0, maximum=MAX_SECONDS)


class TableOptions(TypedDict, total=False):
    """Options of `Tables.follow` and `Tables.change`."""

    key: Annotated[str | Sequence[str] | None, _columns("Columns that identify a row. Default: the primary key.")]
    text: Annotated[
        str | Sequence[str],
        _columns("Columns, or SQL expressions over columns, whose texts are searched, in this order."),
    ]
    heading: Annotated[str | None, Option("Column of the title, which heads every chunk of the row.")]
    formats: Annotated[
        Mapping[str, str],
        Option("Mapping of items of text to their formats, such as {'body': 'markdown'}.", offered=False),
    ]
    metadata: Annotated[str | Sequence[str], _columns("Columns that are copied to the metadata of chunks.")]
    live: Annotated[
        str | Sequence[str], _columns("Columns that filters (@row.NAME) and hits read from the table itself.")
    ]
    changes: Annotated[
        Changes | None,
        Option(
            "How changes are noticed: 'trigger' writes keys into a queue, 'column' reads rows by updated_at, "
            "'comparison' compares hashes. Default: column with updated_at, else comparison."
        ),
    ]
    updated_at: Annotated[str | None, Option("Column with the time of the last change of a row.")]
    overlap: Annotated[
        float,
        _seconds(
            "before the newest change from which a run reads rows again, because transactions can commit late",
            DEFAULT_OVERLAP_SECONDS,
        ),
    ]
    keys_every: Annotated[
        float,
        _seconds(
            "between two runs that compare all keys (with 'trigger', all rows), which finds deleted rows",
            DEFAULT_KEYS_EVERY_SECONDS,
        ),
    ]
    schema: Annotated[str | None, Option("Schema of the table. Default: public.")]
    source_database: Annotated[
        str | None,
        Option(
            "Address of the table's database without a password, or env:NAME for a variable that holds one. "
            "Default: the database of the collection."
        ),
    ]
