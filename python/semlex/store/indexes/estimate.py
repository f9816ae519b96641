"""Estimate memory and time for building a vector index, and the size of the index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from psycopg import sql

from semlex.store.indexes.options import HnswIndex, IvfflatIndex, default_lists
from semlex.store.postgres.rows import only_row
from semlex.store.postgres.server_info import machine_memory
from semlex.store.schema.names import oid_of, stored_in

if TYPE_CHECKING:
    from semlex.store.indexes.catalog import IndexedValue
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo

MIB = 1024 * 1024
# Below this Postgres starts no parallel worker.
MIN_BUILD_MEMORY = 96 * MIB
# Assumed if the server's settings are unknown.
DEFAULT_SHARE = 256 * MIB
# pgvector 0.8, hnsw.h and hnswbuild.c, on a machine of 64 bits. In memory: HnswElementData, the list of neighbour
# lists, the head of one, HnswCandidate, and what the allocator adds.
_ELEMENT, _LISTS, _LIST_HEAD, _CANDIDATE, _ALLOCATOR = 128, 8, 8, 16, 40
# On disk: heads of both tuples, a pointer to a neighbour, a line pointer; what a page of 8 kB holds.
_ELEMENT_TUPLE, _NEIGHBOR_TUPLE, _POINTER, _ITEM, _PAGE, _BLOCK = 72, 4, 6, 4, 8160, 8192
# ivfbuild.c: rows that the centres are made of, at least and for each list; rows that fit on a page of a table.
_MIN_SAMPLES, _SAMPLES_PER_LIST, _ROWS_PER_PAGE = 10_000, 50, 291
# Measured with 1,024 dimensions on one core: seconds per row at m 16 and ef_construction 64, beside what each byte of a
# vector costs; seconds per row, list and dimension of IVFFlat.
_HNSW_ROW, _HNSW_BYTE, _IVFFLAT_ROW, _IVFFLAT_STEP = 1.8e-4, 7.0e-8, 5.0e-5, 5.0e-10
# How much of a core each parallel worker adds.
_WORKER_SHARE = 0.7
# A shorter build gets no workers: starting them and reserving the memory that they share takes longer than they save.
MIN_PARALLEL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEstimate:
    """What building a vector index will probably take, and how large the index will be.

    Attributes:
        rows: Number of vectors.
        index_bytes: Size of the index.
        memory_bytes: Memory that the build needs to run at full speed.
        granted_bytes: Memory that the build gets: at most a limited share of the server's memory.
        workers: Parallel workers that help; 0 if the build is short.
        seconds: Duration of the build, within a factor of three.
        warnings: Warnings to read before the build begins.
    """

    rows: int
    index_bytes: int
    memory_bytes: int
    granted_bytes: int
    workers: int
    seconds: float
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Server:
    """Facts about the table and the server on which an estimate is based; memory in bytes."""

    rows: int
    pages: int
    maintenance_work_mem: int
    shared_buffers: int
    workers: int

    def share(self, connection: Connection) -> int:
        """Return the bytes of memory that a build may use at most."""
        known = [self.maintenance_work_mem, self.shared_buffers, DEFAULT_SHARE]
        if connection.info.host.startswith("/"):
            known.append(machine_memory() // 4)
        return max(known)


async def estimate_build(
    connection: Connection, collection: CollectionInfo, value: IndexedValue, index: HnswIndex | IvfflatIndex
) -> IndexEstimate:
    """Estimate memory, time and size for building an index with these options."""
    server = await _read_server(connection, collection)
    granted = server.share(connection)
    workers = server.workers if collection.server.parallel_index_builds else 0
    parts = max(1, collection.names.partitions)  # each with an index of its own
    rows, pages = math.ceil(server.rows / parts), math.ceil(server.pages / parts)
    if isinstance(index, HnswIndex):
        memory, size = hnsw_memory(rows, value, index.m), hnsw_bytes(rows, value, index.m)
        work = server.rows * index.ef_construction / 64 * math.sqrt(index.m / 16)
        seconds = work * (_HNSW_ROW + _HNSW_BYTE * value_bytes(value)) * max(1.0, math.log10(server.rows + 1) / 4)
    else:
        lists = index.lists or default_lists(rows)
        memory, size = ivfflat_memory(pages, value, lists), ivfflat_bytes(rows, value, lists)
        seconds = server.rows * (_IVFFLAT_ROW + _IVFFLAT_STEP * lists * value.dimensions)
    if seconds < MIN_PARALLEL_SECONDS:
        workers = 0
    memory *= min(parts, 1 + workers)  # as many are built at a time
    warnings = []
    if memory > granted and isinstance(index, HnswIndex):
        warnings.append(
            f"the graph takes about {memory / MIB:,.0f} MiB and the build gets {granted / MIB:,.0f} MiB, so the build "
            "continues on disk, which takes several times as long: raise the server's maintenance_work_mem, or take a "
            "coarser quantization"
        )
    elif memory > granted:
        warnings.append(
            f"finding the centres takes about {memory / MIB:,.0f} MiB and the build gets {granted / MIB:,.0f} MiB, "
            "too little to succeed: raise the server's maintenance_work_mem, or take fewer lists"
        )
    return IndexEstimate(
        rows=server.rows,
        index_bytes=parts * size,
        memory_bytes=memory,
        granted_bytes=min(max(memory, MIN_BUILD_MEMORY), granted),
        workers=workers,
        seconds=seconds / (1 + _WORKER_SHARE * workers),
        warnings=tuple(warnings),
    )


async def _read_server(connection: Connection, collection: CollectionInfo) -> _Server:
    table = collection.names.embedding(collection.vectors.version)
    row = await only_row(
        connection,
        sql.SQL(
            "SELECT (SELECT count(*) FROM {table}), "
            "(SELECT sum(pg_catalog.pg_relation_size(l.oid))::bigint / 8192 FROM {stored}), "
            "pg_catalog.pg_size_bytes(pg_catalog.current_setting('maintenance_work_mem')), "
            "pg_catalog.pg_size_bytes(pg_catalog.current_setting('shared_buffers')), "
            "least(pg_catalog.current_setting('max_parallel_maintenance_workers')::int, "
            "pg_catalog.current_setting('max_parallel_workers')::int)"
        ).format(table=table, stored=stored_in(oid_of(table))),
    )
    return _Server(*row)


def value_bytes(value: IndexedValue) -> int:
    """Return how many bytes one vector takes in an index."""
    return 8 + {"vector": 4 * value.dimensions, "halfvec": 2 * value.dimensions}.get(
        value.element, math.ceil(value.dimensions / 8)
    )


def hnsw_memory(rows: int, value: IndexedValue, m: int) -> int:
    """Return how many bytes an HNSW graph takes in memory while it is built."""
    upper = _CANDIDATE * m // max(1, m - 1)  # one in m is on the next layer, too
    neighbors = _LISTS + _LIST_HEAD + 2 * m * _CANDIDATE + upper
    return rows * (_ELEMENT + neighbors + value_bytes(value) + _ALLOCATOR)


def hnsw_bytes(rows: int, value: IndexedValue, m: int) -> int:
    """Return the bytes of an HNSW index, in which a vector and the list of its neighbours share a page, if they fit."""
    element = _aligned(_ELEMENT_TUPLE + value_bytes(value)) + _ITEM
    neighbors = _aligned(_NEIGHBOR_TUPLE + 2 * m * _POINTER) + _ITEM
    if element + neighbors > _PAGE:
        return rows * 2 * _BLOCK
    return math.ceil(rows / (_PAGE // (element + neighbors))) * _BLOCK


def ivfflat_memory(pages: int, value: IndexedValue, lists: int) -> int:
    """Return the bytes of memory for finding the centres of an IVFFlat index; with less memory the build fails."""
    samples = max(1, min(max(_MIN_SAMPLES, _SAMPLES_PER_LIST * lists), pages * _ROWS_PER_PAGE))
    size = _aligned(value_bytes(value))
    per_list = 2 * size + 4 * value.dimensions + 12
    return samples * (size + 8 + 4 * lists) + lists * (per_list + 4 * lists) + MIB


def ivfflat_bytes(rows: int, value: IndexedValue, lists: int) -> int:
    """Return the bytes of an IVFFlat index: every vector, and half a page of unused space for each list."""
    on_page = max(1, _PAGE // (_aligned(8 + value_bytes(value)) + _ITEM))
    return (math.ceil(rows / on_page) + math.ceil(lists / 2)) * _BLOCK


def _aligned(size: int) -> int:
    return (size + 7) // 8 * 8
