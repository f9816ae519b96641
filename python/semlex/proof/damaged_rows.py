"""A row of the keyword index is damaged: searches say so or answer rightly, and a rebuild heals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semlex.errors import AnalyzerVersionError, ConfigurationError, DamagedSegmentError
from semlex.proof.check import check_answers, check_stored, compare_scores, draw_text
from semlex.proof.embedder import WordDirections
from semlex.proof.plain_bm25 import plain_bm25
from semlex.proof.scenarios import Kind, Scenario, Tries
from semlex.proof.works import WORDS, documents
from semlex.store.proving.damage import damage_index
from semlex.store.proving.ground import connected

if TYPE_CHECKING:
    import random

    from semlex.proof.site import Site

TEXTS = 40
SEARCHES = 3


class DamagedRows(Scenario):
    """One row is damaged, searched over by a client that has just begun, and healed."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        super().__init__(site, chance)
        self._names = site.names("damaged")
        self._client = site.client(site.application("damaged"))
        self._collection = self._client.collection(self._names.collection)
        self._texts: dict[str, str] = {}
        self._add(TEXTS)

    def _add(self, count: int) -> None:
        rows = {f"d{n}": draw_text(self.chance, WORDS) for n in self.chance.sample(range(TEXTS), count)}
        self._collection.add_documents(documents(list(rows.items())))
        self._texts |= rows

    def attempt(self) -> Tries:
        self._add(2)  # leaves tombstones and small segments
        with connected(self.site.url) as connection:
            damage = damage_index(connection, self._names, self.chance)
        if damage is not None:
            self._search(damage)
            self._collection.indexes.rebuild_keyword()
        self.site.sabotage(self._names)
        check_stored(self.site.url, self._names, [self._texts], WordDirections())
        check_answers(self._collection, self._texts, WORDS, self.chance)
        return Tries(tries=int(damage is not None))

    def _search(self, damage: str) -> None:
        with self.site.client(self.site.application("damaged")) as client:
            collection = client.collection(self._names.collection)
            for _ in range(SEARCHES):
                query = draw_text(self.chance, WORDS, 3)
                try:
                    hits = collection.search(query, 1000, mode="keyword")
                except (DamagedSegmentError, AnalyzerVersionError, ConfigurationError):
                    self.notes["reported"] += 1
                    continue
                self.notes["answered rightly"] += 1
                texts = {one: ("english", text) for one, text in self._texts.items()}
                scores = {hit.id: hit.keyword_score for hit in hits}
                compare_scores(scores, plain_bm25(texts, query), f"{damage}: {query}")

    def close(self) -> None:
        self._client.close()


KINDS = [
    Kind(
        "damage",
        "damage",
        "one row of the keyword index damaged: searches report it or answer rightly, and a rebuild heals it",
        DamagedRows,
    )
]
