"""All scenarios by name, and which of them a word on the command line means."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.proof import (
    black_hole,
    crashes,
    damaged_rows,
    ended_backends,
    failovers,
    folder_histories,
    full_disks,
    hostile,
    kills,
    pooler_restarts,
    soak,
    together,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.proof.scenarios import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for module in (
        *(kills, crashes, failovers, pooler_restarts, full_disks, ended_backends),
        *(together, hostile, damaged_rows, black_hole, folder_histories, soak),
    )
    for kind in module.KINDS
}


def chosen(only: Sequence[str]) -> list[Kind]:
    """Return the scenarios of these names and groups; all of them if none is named."""
    known = sorted({*KINDS, *(kind.group for kind in KINDS.values())})
    for name in only:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ";"
            raise ConfigurationError(f"unknown scenario {name!r}{hint} known: {', '.join(known)}")
    return [kind for kind in KINDS.values() if not only or kind.name in only or kind.group in only]
