"""A vector index built in the background by a process that is killed: it is built in the end, and whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.proof.faults import expect
from semlex.proof.kills import Killed
from semlex.proof.texts import documents

if TYPE_CHECKING:
    from semlex.proof.kills import Acknowledge, Limits
    from semlex.retriever.synchronous import SyncClient, SyncCollection

BEFORE, FROM_ROWS = 70, 80


class Building(Killed):
    """A load after which indexes are built in the background."""

    name = "kill-build"
    what = "a load after which indexes are built in the background"

    def limits(self) -> Limits:
        return {
            "semlex.store.indexes.choice": {"INDEX_FROM_ROWS": FROM_ROWS},
            "semlex.store.indexes.background": {"QUIET_SECONDS": 0.0},
        }

    def draw(self) -> dict[str, str]:
        self.drop()
        rows = list(self.some_texts(BEFORE + 20).items())
        self.add(dict(rows[:BEFORE]))
        return dict(rows[BEFORE:])

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client
        collection.add_documents(documents(arguments))
        acknowledge()
        collection.indexes.wait()

    def states(self, arguments: Any) -> list[dict[str, str]]:
        return [self.texts, {**self.texts, **arguments}]

    def finish(self, arguments: Any) -> None:
        super().finish(arguments)
        self.collection.indexes.create()

    def check(self) -> None:
        super().check()
        built = self.collection.status().vector_indexes
        is_whole = len(built) == 1 and all(one.valid for one in built)
        expect(is_whole, "lost", f"{len(built)} vector indexes, valid: {[one.valid for one in built]}")
