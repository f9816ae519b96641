"""All scenarios by name, and which of them a word on the command line means."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.proof.black_hole import BlackHole
from semlex.proof.clock_jumps import ClockJumps
from semlex.proof.damaged_rows import DamagedRows
from semlex.proof.folders import FolderHistories, Indexing, Syncing
from semlex.proof.followed_tables import Following, TableHistories
from semlex.proof.hostile import HostileValues
from semlex.proof.interruptions import Crashes, EndedBackends, Failovers, FullDisks, PoolerRestarts
from semlex.proof.killed_work import (
    Adding,
    Building,
    Deleting,
    Loading,
    Optimizing,
    Rebuilding,
    Reembedding,
    Restoring,
    Working,
)
from semlex.proof.soak import Soak
from semlex.proof.together import Together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.proof.scenarios import Scenario

KINDS: dict[str, type[Scenario]] = {
    kind.name: kind
    for kind in (
        *(Indexing, Syncing, Adding, Deleting, Loading, Optimizing, Rebuilding, Reembedding),
        *(Building, Following, Working, Restoring),
        *(Crashes, Failovers, PoolerRestarts, FullDisks, ClockJumps, EndedBackends),
        *(Together, HostileValues, DamagedRows, BlackHole, FolderHistories, TableHistories, Soak),
    )
}


def chosen(only: Sequence[str]) -> list[type[Scenario]]:
    """Return the scenarios of these names and groups; all of them if none is named."""
    known = sorted({*KINDS, *(kind.group for kind in KINDS.values() if kind.group)})
    for name in only:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ";"
            raise ConfigurationError(f"unknown scenario {name!r}{hint} known: {', '.join(known)}")
    return [kind for kind in KINDS.values() if not only or kind.name in only or kind.group in only]
