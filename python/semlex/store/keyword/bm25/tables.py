"""The tables of the keyword index. Their rows are immutable; they are replaced, never changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import Names


def create_tables(names: Names) -> Sequence[sql.Composed]:
    """Statements that make the tables.

    A segment holds up to 65,536 chunks of one language: their ids and lengths in its header, and its terms in order,
    cut into posting rows of which the key is the first term. A tombstone names chunks that segments still hold and
    that are gone. All of them belong to a generation; one answers, a second may be in the making.

    The manifest lists segments and tombstones a second time, and `row_keys` is a hash of the keys of a segment's
    posting rows, so that a row that is lost or stands under another key is noticed.

    The bytes are packed already, so the server shall not try to compress them. Pages are filled to the brim, because no
    row is ever updated. Merging deletes whole segments: after a tenth of the rows the room is worth being given back,
    where the server's default waits for a fifth.
    """
    kept = sql.SQL("WITH (autovacuum_vacuum_scale_factor = 0.1)")
    return (
        sql.SQL("""
            CREATE TABLE {} (
                segment_id uuid PRIMARY KEY,
                generation int NOT NULL,
                language text NOT NULL,
                chunks int NOT NULL,
                postings bigint NOT NULL,
                row_keys bytea NOT NULL,
                header bytea NOT NULL
            ) {}""").format(names.segment, kept),
        sql.SQL("""
            CREATE TABLE {} (
                segment_id uuid NOT NULL,
                first_term bytea NOT NULL,
                data bytea NOT NULL,
                PRIMARY KEY (segment_id, first_term)
            ) {}""").format(names.posting, kept),
        sql.SQL("""
            CREATE TABLE {} (
                tombstone_id uuid PRIMARY KEY,
                generation int NOT NULL,
                data bytea NOT NULL
            ) {}""").format(names.tombstone, kept),
        sql.SQL("CREATE TABLE {} (part_id uuid PRIMARY KEY, generation int NOT NULL) {}").format(names.manifest, kept),
        sql.SQL("ALTER TABLE {} ALTER COLUMN header SET STORAGE EXTERNAL").format(names.segment),
        sql.SQL("ALTER TABLE {} ALTER COLUMN data SET STORAGE EXTERNAL").format(names.posting),
        sql.SQL("ALTER TABLE {} ALTER COLUMN data SET STORAGE EXTERNAL").format(names.tombstone),
    )
