"""Two processes keep one folder in step while it changes: the end is that of a new index."""

from __future__ import annotations

from semlex.proof.check import check_files
from semlex.proof.children import Child
from semlex.proof.faults import Fault
from semlex.proof.killed_work import Syncing
from semlex.proof.kills import Order, run
from semlex.proof.scenarios import Tries
from semlex.store.proving.ground import named_clients

STIRS = 3


class FolderHistories(Syncing):
    """Change a folder while two processes synchronise it; then synchronise it once more, undisturbed."""

    name = "folder"
    group = ""
    what = "a folder whose files change, move and vanish while two processes keep it in step"
    weight = 1.0

    def attempt(self) -> Tries:
        arguments = self.draw()
        address = named_clients(self.site.url, self.site.application(self.name))
        order = Order(address, self.names, type(self), arguments, self.limits())
        with Child(run, order) as one, Child(run, order) as other:
            for _ in range(STIRS):
                self.folder.stir()
                check_files(self.site.url, self.names, self.folder, self.model, complete=False)
            for child in (one, other):
                # A file that vanishes or changes while it is read is reported, and read by the next run.
                if child.ended() != 0:
                    raise Fault("wrong", f"a run over a changing folder failed: {child.said[-2000:]}")
        self.finish(arguments)
        self.site.sabotage(self.names)
        self.check()
        return Tries(tries=STIRS)
