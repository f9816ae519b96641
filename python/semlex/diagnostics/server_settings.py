"""Server settings that affect searches, loads and index builds: current values, advice and its reasons."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.store.postgres.embedded.process import MARK
from semlex.store.postgres.embedded.server import server_memory
from semlex.store.postgres.server_info import ServerSetting, machine_memory, read_server_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semlex.store.postgres.connection import Connection

MIB, GIB = 1024**2, 1024**3
MIN_BUILD_MEMORY, MAX_BUILD_MEMORY = 256 * MIB, 8 * GIB
MIN_WORK_MEMORY, MAX_WORK_MEMORY = 16 * MIB, 64 * MIB
MAX_SHARED_MEMORY = 32 * GIB
MAX_WORKERS = 8
WAL_BYTES = 4 * GIB
PAGE_COST, MAX_PAGE_COST = 1.1, 2.0
NAMES = (
    "shared_buffers",
    "effective_cache_size",
    "work_mem",
    "maintenance_work_mem",
    "max_parallel_maintenance_workers",
    "max_parallel_workers",
    "max_worker_processes",
    "max_wal_size",
    "random_page_cost",
    "jit",
    "max_connections",
)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a server: memory in bytes and number of cores, if known."""

    memory: int | None = None
    cores: int | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice on one setting."""

    setting: str
    now: str
    advised: str  # the advised value, or a description if the machine is unknown
    met: bool | None  # whether the current value is good enough; None if unknown
    reason: str
    statement: str | None = None  # SQL that sets it


async def examine_settings(connection: Connection) -> list[Advice]:
    """Examine the settings of a server; its memory and cores are known only if it runs on this machine."""
    found = await read_server_settings(connection, (*NAMES, "cluster_name"))
    is_embedded = MARK.fullmatch(found.pop("cluster_name").text) is not None
    machine = Machine()
    if connection.info.host.startswith("/"):
        memory = machine_memory()
        machine = Machine((server_memory(memory) if is_embedded else memory) or None, os.cpu_count())
    return list(advise(found, machine))


def advise(settings: dict[str, ServerSetting], machine: Machine) -> Iterator[Advice]:
    """Yield the advice for a server with these settings."""
    memory, cores = machine.memory, machine.cores
    yield _at_least(
        settings["shared_buffers"],
        None if memory is None else min(memory // 4, MAX_SHARED_MEMORY),
        "a quarter of the server's memory",
        "pages in this cache are read without a system call; an HNSW index should fit into the cache",
    )
    yield _at_least(
        settings["effective_cache_size"],
        None if memory is None else memory // 4 * 3,
        "three quarters of the server's memory",
        "this setting reserves no memory; if it is too low, the planner underestimates indexes",
    )
    connections = max(1, round(settings["max_connections"].number))
    yield _at_least(
        settings["work_mem"],
        None if memory is None else min(MAX_WORK_MEMORY, max(MIN_WORK_MEMORY, memory // 8 // connections)),
        "an eighth of the memory divided by max_connections, from 16MB to 64MB",
        "a filtered search keeps in this memory the rows that an HNSW scan has visited; if it is full, the search "
        "becomes exact",
    )
    yield _at_least(
        settings["maintenance_work_mem"],
        None if memory is None else min(MAX_BUILD_MEMORY, max(MIN_BUILD_MEMORY, memory // 16)),
        "256MB, or the estimate of semlex maintain create-index --dry-run",
        "an HNSW graph that fits into this memory is built several times as fast; semlex uses only what a build needs",
    )
    workers = None if cores is None else max(2, min(cores - 1, MAX_WORKERS))
    yield _at_least(
        settings["max_parallel_maintenance_workers"],
        workers,
        "the number of cores minus one, 2 to 8",
        "this many processes help to build an index",
        unit="",
    )
    for name in ("max_parallel_workers", "max_worker_processes"):
        reason = "the server starts no more worker processes than this"
        yield _at_least(settings[name], workers, "the number of cores minus one, 2 to 8, or more", reason, unit="")
    yield _at_least(
        settings["max_wal_size"],
        WAL_BYTES,
        "",
        "each time a load has written this much WAL, the server writes all changed pages to disk",
    )
    cost = settings["random_page_cost"]
    reason = "on solid-state disks random reads cost little more; with 4 the planner avoids indexes"
    yield _advice(cost, str(PAGE_COST), cost.number <= MAX_PAGE_COST, reason)
    jit = settings["jit"]
    reason = "compiling takes longer than a search; semlex turns it off for its own statements"
    yield _advice(jit, "off", jit.text == "off", reason)


def _at_least(setting: ServerSetting, advised: int | None, words: str, reason: str, *, unit: str = "B") -> Advice:
    """Return advice on the minimum of a setting; for memory, half the advised value is enough."""
    if advised is None:
        return Advice(setting.name, setting.text, words, None, reason)
    value = _size(advised) if unit else str(advised)
    return _advice(setting, value, setting.number >= (advised / 2 if unit else advised), reason)


def _size(number: int) -> str:
    return f"{number // GIB}GB" if number >= 2 * GIB else f"{number // MIB}MB"


def _advice(setting: ServerSetting, value: str, met: bool, reason: str) -> Advice:
    """Return advice with the SQL that sets the advised value."""
    after = "then restart the server" if setting.needs_restart else "then: SELECT pg_reload_conf();"
    statement = f"ALTER SYSTEM SET {setting.name} = '{value}'; -- {after}"
    return Advice(setting.name, setting.text, value, met, reason, statement)
