"""Encode columns in Rust and send them in blocks by binary COPY; read and write arrays of ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import IncompleteWriteError
from semlex.validation import check_parameters, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from psycopg import sql

    from semlex import _core
    from semlex.store.postgres.connection import Connection


@dataclass(frozen=True, slots=True)
class BulkIngestConfig:
    """How documents are written.

    Attributes:
        batch_size: Maximum rows of one transaction, 1 to 100,000. A batch is held in memory with its vectors.
        small_batch_rows: Batches of up to this many rows, 0 to 1,000, are sent as arrays, larger ones by COPY.
        copy_block_bytes: Size of a block of COPY, 64 KiB to 64 MiB. Blocks above 1 MiB are not faster (measured),
            and exceed the processor's cache.
        build_indexes: Whether a load begins to build missing indexes once the collection has 10,000 rows. If False,
            call `Indexes.create` when all is loaded.
        wait_for_index: Whether a load that builds indexes returns only when they are built. By default it returns when
            the rows are stored; they can be searched at once, and the indexes are built meanwhile.

    Raises:
        ConfigurationError: A number is out of range.
    """

    batch_size: int = 5_000
    small_batch_rows: int = 64
    copy_block_bytes: int = 1024 * 1024
    build_indexes: bool = True
    wait_for_index: bool = False

    def __post_init__(self) -> None:
        check_parameters(
            whole_number_errors("batch_size", self.batch_size, 1, 100_000),
            whole_number_errors("small_batch_rows", self.small_batch_rows, 0, 1_000),
            whole_number_errors("copy_block_bytes", self.copy_block_bytes, 64 * 1024, 64 * 1024 * 1024),
        )


DEFAULT_BULK = BulkIngestConfig()


# "Binary Format" on the COPY page of the PostgreSQL manual.
HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"


async def copy_rows(
    connection: Connection,
    target: sql.Composed,
    parts: Iterable[_core.CopyEncoder],
    block_bytes: int = DEFAULT_BULK.copy_block_bytes,
) -> int:
    """Send rows through one binary COPY, in blocks that are encoded into a reused buffer; return how many."""
    memory = bytearray(block_bytes)
    sent = 0
    cursor = connection.cursor()
    async with cursor.copy(target) as copy:
        await copy.write(HEADER)
        for encoder in parts:
            if encoder.largest_row > len(memory):
                memory = bytearray(encoder.largest_row)
            buffer, view = np.frombuffer(memory, dtype=np.uint8), memoryview(memory)
            position = 0
            while position <= encoder.rows:
                # Each part is a stream of its own, of which only the rows are sent.
                start = len(HEADER) if position == 0 else 0
                position, size = encoder.encode_into(buffer, position)
                end = size - len(TRAILER) if position > encoder.rows else size
                # The buffer may be used again: the writer hands the block to libpq before it returns.
                await copy.write(view[start:end])
            sent += encoder.rows
        await copy.write(TRAILER)
    if cursor.rowcount != sent:
        raise IncompleteWriteError(
            f"sent {sent} rows, but the server received {cursor.rowcount}; the transaction was rolled back"
        )
    return sent


# The form that array_send() gives a bigint[] without NULL: 20 bytes of dimensions, then length and value of each.
ARRAY_HEADER_BYTES = 20
ARRAY_ENTRY = np.dtype([("bytes", ">i4"), ("value", ">i8")])
NO_IDS: NDArray[np.int64] = np.empty(0, dtype=np.int64)


def ids_of(array: bytes | None) -> NDArray[np.int64]:
    """Return the values of ``array_send(array_agg(…))`` of a bigint, ascending; an empty array for NULL."""
    if array is None:
        return NO_IDS
    return np.sort(np.frombuffer(array, ARRAY_ENTRY, offset=ARRAY_HEADER_BYTES)["value"].astype(np.int64))


def array_text(numbers: Iterable[int]) -> str:
    """Return numbers in the text form of an SQL array, which the driver sends faster than a list."""
    return "{" + ",".join(map(str, numbers)) + "}"


def joined(parts: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Join several arrays into one."""
    return np.concatenate([NO_IDS, *parts])
