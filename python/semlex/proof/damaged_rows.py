"""A row of the keyword index is damaged: searches report it or answer correctly, and a rebuild repairs it."""

from __future__ import annotations

from semlex.errors import AnalyzerVersionError, ConfigurationError, DamagedSegmentError
from semlex.proof.check import check_answers, check_hits
from semlex.proof.scenarios import Scenario, Tries
from semlex.proof.texts import documents, draw_text
from semlex.store.proving import connected, damage_index

TEXTS = 40
SEARCHES = 3


class DamagedRows(Scenario):
    """Damage one row, search with a new client, and repair the row."""

    name = "damage"
    what = "one row of the keyword index damaged: searches report it or answer correctly, and a rebuild repairs it"

    def begin(self) -> None:
        client = self.opened.enter_context(self.site.client(self.site.application(self.name)))
        self._collection = client.collection(self.names.collection)
        self._add(TEXTS)

    def _add(self, count: int) -> None:
        rows = {f"d{n}": draw_text(self.chance) for n in self.chance.sample(range(TEXTS), count)}
        self._collection.add_documents(documents(rows))
        self.texts |= rows

    def attempt(self) -> Tries:
        self._add(2)  # leaves tombstones and small segments
        with connected(self.site.url) as connection:
            damage = damage_index(connection, self.names, self.chance)
        if damage is not None:
            self._search(damage)
            self._collection.indexes.rebuild_keyword()
        self.check_texts()
        check_answers(self._collection, self.texts, self.chance)
        return Tries(tries=int(damage is not None))

    def _search(self, damage: str) -> None:
        with self.site.client(self.site.application(self.name)) as client:
            collection = client.collection(self.names.collection)
            for _ in range(SEARCHES):
                query = draw_text(self.chance, 3)
                try:
                    hits = collection.search(query, 1000, mode="keyword")
                except (DamagedSegmentError, AnalyzerVersionError, ConfigurationError):
                    self.notes["reported"] += 1
                    continue
                self.notes["answered rightly"] += 1
                check_hits(hits, self.texts, query, f"{damage}: ")
