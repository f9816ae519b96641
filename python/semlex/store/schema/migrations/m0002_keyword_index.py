"""What a keyword index of our own needs: ids that are reserved in blocks, the language of a text, and its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.store.schema.names import Names

# A segment of the index numbers its chunks with 16 bits, and a block of ids is as large as the largest segment: the ids
# of one are a single range, however many writers there are. 2**63 ids are enough for 1.4e14 blocks.
ID_BLOCK = 65_536


def registry(schema: str) -> Sequence[sql.Composed]:
    """Which generation of a collection's index answers, which one is being built, and by which analyzer."""
    return (
        sql.SQL("""
            ALTER TABLE {}
                ADD COLUMN stop_words bool NOT NULL DEFAULT true,
                ADD COLUMN analyzer_version int,
                ADD COLUMN lexical_generation int NOT NULL DEFAULT 1,
                ADD COLUMN building_generation int,
                ADD COLUMN building_analyzer_version int""").format(sql.Identifier(schema, "collection")),
    )


def collection(names: Names) -> Sequence[sql.Composed]:
    """`language` is NULL where it is the collection's; `previous_id` is the id that an update took the place of."""
    return (
        sql.SQL("ALTER TABLE {} ADD COLUMN language text, ADD COLUMN previous_id bigint").format(names.chunk),
        sql.SQL("ALTER TABLE {} ALTER COLUMN lexical_id SET INCREMENT BY {}").format(
            names.chunk, sql.Literal(ID_BLOCK)
        ),
    )
