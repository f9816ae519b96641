"""A vector index built in the background by a process that is killed: it is built in the end, and whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semlex.proof.faults import expect
from semlex.proof.works import Acknowledge, Limits, Work, documents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from semlex.retriever.synchronous import SyncClient, SyncCollection

BEFORE, FROM_ROWS = 70, 80


class Building(Work):
    """A load after which indexes are built in the background."""

    name = "build"
    what = "a load after which indexes are built in the background"

    def limits(self) -> Limits:
        return {
            "semlex.store.indexes.catalog": {"INDEX_FROM_ROWS": FROM_ROWS},
            "semlex.store.indexes.background": {"QUIET_SECONDS": 0.0},
        }

    def draw(self) -> list[tuple[str, str]]:
        self.drop()
        rows = self.some_texts(BEFORE + 20)
        self.add(rows[:BEFORE])
        return rows[BEFORE:]

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client
        collection.add_documents(documents(arguments))
        acknowledge()
        collection.indexes.wait()

    def states(self, arguments: Any) -> list[Mapping[str, str]]:
        return [self.texts, {**self.texts, **dict(arguments)}]

    def finish(self, arguments: Any) -> None:
        super().finish(arguments)
        self.collection.indexes.create()

    def check(self) -> None:
        super().check()
        built = self.collection.status().vector_indexes
        is_whole = len(built) == 1 and all(one.valid for one in built)
        expect(is_whole, "lost", f"{len(built)} vector indexes, valid: {[one.valid for one in built]}")
