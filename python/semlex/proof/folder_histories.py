"""Two processes keep one folder in step while it changes: the end is that of a new index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.proof.check import check_files
from semlex.proof.children import Child
from semlex.proof.embedder import WordDirections
from semlex.proof.faults import Fault
from semlex.proof.kills import Order, run
from semlex.proof.scenarios import Kind, Scenario, Tries
from semlex.proof.works import SIZES, Syncing
from semlex.store.proving.ground import named_clients

if TYPE_CHECKING:
    import random

    from semlex.proof.site import Site

STIRS = 3


class FolderHistories(Scenario):
    """A folder that is stirred while two processes synchronise it, then once more in peace."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        super().__init__(site, chance)
        self._work = Syncing(site, chance)

    def attempt(self) -> Tries:
        work = self._work
        arguments = work.draw()
        limits = work.limits()
        address = named_clients(self.site.url, self.site.application("folder"))
        order = Order(address, work.names, work.name, arguments, limits, moment=0, seconds=None)
        with Child(run, order) as one, Child(run, order) as other:
            for _ in range(STIRS):
                work.folder.stir()
                check_files(self.site.url, work.names, work.folder, WordDirections(), complete=False)
            for child in (one, other):
                # A file that vanishes or changes while it is read is reported, and read by the next run.
                if child.ended() != 0:
                    raise Fault("wrong", f"a run over a changing folder failed: {child.said[-2000:]}")
        work.collection.sync(arguments, **SIZES)  # type: ignore[arg-type]
        self.site.sabotage(work.names)
        work.check()
        return Tries(tries=STIRS)

    def close(self) -> None:
        self._work.close()


KINDS = [
    Kind(
        "folder",
        "folder",
        "a folder whose files change, move and vanish while two processes keep it in step",
        FolderHistories,
    )
]
