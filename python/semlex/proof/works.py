"""The work that is killed: what a process does, in which states it may leave a collection, and how it is completed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from functools import reduce
from itertools import combinations
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar

from semlex.proof.check import check_answers, check_files, check_stored, draw_text
from semlex.proof.embedder import WordDirections
from semlex.proof.faults import expect
from semlex.proof.stirred_folder import StirredFolder
from semlex.store.proving.faults import is_made, serving_version
from semlex.store.proving.ground import connected, end_leases
from semlex.store.write.copy import BulkIngestConfig
from semlex.types.documents import Document

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from semlex.proof.site import Site
    from semlex.retriever.synchronous import SyncClient, SyncCollection
    from semlex.store.schema.names import Names

WORDS = ("cat", "dog", "ship", "running", "the", "key", "rotation", "vault", "banana", "yellow", "fruit", "Straße")
IDS = 120
BATCH = 20  # rows of a transaction of a load
SIZES = {"chunk_tokens": 32, "overlap_tokens": 0}
Limits = dict[str, dict[str, float]]
Acknowledge = Callable[[], None]


class Work(ABC):
    """Work on a collection of its own, done by a process that may be killed, and then once more to its end."""

    name: ClassVar[str]
    what: ClassVar[str]
    bulk: ClassVar[BulkIngestConfig] = BulkIngestConfig()

    def __init__(self, site: Site, chance: random.Random) -> None:
        self.site, self.chance = site, chance
        self.names: Names = site.names(self.name)
        self.client = site.client(site.application(f"{self.name}-parent"))
        self.model = WordDirections()
        self.texts: Mapping[str, str] = {}

    @staticmethod
    def child_model() -> WordDirections | str:
        """Return the model of the process; by default that of the collection."""
        return WordDirections()

    @property
    def collection(self) -> SyncCollection:
        """The collection, as this process has opened it."""
        return collection_of(self.client, self.names, type(self))

    def close(self) -> None:
        """Close what this process has opened."""
        self.client.close()

    def limits(self) -> Limits:
        """Return constants of modules for the process, with which little data comes to every moment."""
        return {}

    @abstractmethod
    def draw(self) -> Any:
        """Prepare a try; return the arguments of `do`."""

    @staticmethod
    @abstractmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        """Do the work; call `acknowledge` for each part that is done."""

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        """Check what the process has left; it has heard of so many parts that they are done."""
        states = self.states(arguments)[acknowledged : acknowledged + 2]
        check_stored(self.site.url, self.names, states, self.model)

    def states(self, arguments: Any) -> list[Mapping[str, str]]:
        """Return the texts before the work and after each of its parts."""
        del arguments
        return [self.texts] * 2

    def finish(self, arguments: Any) -> None:
        """Do the work again, to its end."""
        self.do(self.client, self.collection, arguments, lambda: None)
        self.texts = self.states(arguments)[-1]

    def check(self) -> None:
        """Check that nothing is lost, doubled or wrong."""
        check_stored(self.site.url, self.names, [self.texts], self.model)
        check_answers(self.collection, self.texts, WORDS, self.chance)

    # --- what works have in common --------------------------------------------------------------------------------

    def some_texts(self, count: int) -> list[tuple[str, str]]:
        """Draw ids, many of which exist already, with new texts."""
        return [(f"d{n}", draw_text(self.chance, WORDS)) for n in self.chance.sample(range(IDS), count)]

    def add(self, rows: Sequence[tuple[str, str]]) -> None:
        """Store texts from this process."""
        self.collection.add_documents(documents(rows))
        self.texts = {**self.texts, **dict(rows)}

    def drop(self) -> None:
        """Drop the collection if it exists."""
        with connected(self.site.url) as connection:
            exists = is_made(connection, self.names)
        if exists:
            self.client.drop(self.names.collection)
        self.texts = {}


def documents(rows: Sequence[tuple[str, str]]) -> list[Document]:
    """Return rows as documents."""
    return [Document(text, id=one) for one, text in rows]


def collection_of(client: SyncClient, names: Names, work: type[Work]) -> SyncCollection:
    """Return the collection of a work."""
    return client.collection(names.collection, bulk=work.bulk)


class Adding(Work):
    """Documents added in batches, new ones and others in the place of stored ones."""

    name = "add"
    what = "documents added in batches, some in the place of stored ones"

    def draw(self) -> list[list[tuple[str, str]]]:
        if self.chance.random() < 0.1:
            self.drop()
        # Few rows travel as arrays, many by COPY.
        return [self.some_texts(self.chance.choice((1, 8, 80))) for _ in range(3)]

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client
        for batch in arguments:
            collection.add_documents(documents(batch))
            acknowledge()

    def states(self, arguments: Any) -> list[Mapping[str, str]]:
        found = [self.texts]
        for batch in arguments:
            found.append({**found[-1], **dict(batch)})
        return found


class Deleting(Work):
    """Documents deleted in batches."""

    name = "delete"
    what = "documents deleted in batches"

    def draw(self) -> list[list[str]]:
        self.add(self.some_texts(40))
        chosen = self.chance.sample(sorted(self.texts), 30)
        return [chosen[:1], chosen[1:10], chosen[10:]]

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client
        for batch in arguments:
            collection.delete(batch)
            acknowledge()

    def states(self, arguments: Any) -> list[Mapping[str, str]]:
        found = [self.texts]
        for batch in arguments:
            found.append({one: text for one, text in found[-1].items() if one not in batch})
        return found


class Loading(Work):
    """Rows with vectors loaded by COPY, some of them into an empty collection."""

    name = "load"
    what = "rows with vectors loaded by COPY, in several transactions"
    bulk = BulkIngestConfig(batch_size=BATCH, small_batch_rows=0, copy_block_bytes=64 * 1024)

    def draw(self) -> list[tuple[str, str]]:
        if self.chance.random() < 0.3:
            self.drop()
        return self.some_texts(3 * BATCH)

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client
        vectors = WordDirections().embed_documents([text for _, text in arguments])
        rows = {
            "id": [one for one, _ in arguments],
            "text": [text for _, text in arguments],
            "vector": vectors,
        }
        collection.tables.load(rows, progress=lambda _: acknowledge())

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        # Batches are written side by side: each is stored as a whole, or not at all.
        batches = [dict(arguments[start : start + BATCH]) for start in range(0, len(arguments), BATCH)]
        states = [
            reduce(or_, chosen, dict(self.texts))
            for count in range(acknowledged, len(batches) + 1)
            for chosen in combinations(batches, count)
        ]
        check_stored(self.site.url, self.names, states, self.model)

    def states(self, arguments: Any) -> list[Mapping[str, str]]:
        return [self.texts, {**self.texts, **dict(arguments)}]


class Optimizing(Work):
    """Many small segments of the keyword index merged into few."""

    name = "optimize"
    what = "small segments of the keyword index merged"

    def draw(self) -> None:
        if not self.texts:
            self.add(self.some_texts(60))
        for _ in range(3):
            self.add(self.some_texts(2))
        gone = self.chance.sample(sorted(self.texts), 3)
        self.collection.delete(gone)
        self.texts = {one: text for one, text in self.texts.items() if one not in gone}

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client, arguments
        collection.indexes.optimize()
        acknowledge()


class Rebuilding(Optimizing):
    """A second generation of the keyword index built, and switched to."""

    name = "rebuild"
    what = "the keyword index built again beside the one in use, and switched to"

    def limits(self) -> Limits:
        return {"semlex.store.keyword.bm25.rebuild": {"PAGE_ROWS": 20}}

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client, arguments
        collection.indexes.rebuild_keyword()
        acknowledge()


class Reembedding(Work):
    """Another embedding model: its vectors made beside those in use, and switched to."""

    name = "reembed"
    what = "another embedding model's vectors made beside those in use, and switched to"

    def __init__(self, site: Site, chance: random.Random) -> None:
        super().__init__(site, chance)
        self._salts = ("", "other")

    def limits(self) -> Limits:
        return {
            "semlex.maintenance.version_fill": {"PAGE_ROWS": 20, "LAST_ROWS": 4},
            "semlex.store.embedding_versions": {"RUN_SECONDS": 120.0},  # its lease is ended when it is dead
        }

    @staticmethod
    def child_model() -> WordDirections | str:
        return "none"  # it has the new one alone

    def draw(self) -> str:
        self.add(self.some_texts(10 if self.texts else 70))
        return self._salts[1]

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client
        collection.embeddings.change(WordDirections(salt=arguments))
        acknowledge()

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del acknowledged, arguments
        self._check_serving()
        if self._serving() == self._before:
            # A client with the old model goes on to write and to search.
            self.add(self.some_texts(3))
            check_answers(self.collection, self.texts, WORDS, self.chance)

    def finish(self, arguments: Any) -> None:
        before = self._before
        with connected(self.site.url) as connection:
            end_leases(connection, self.names.schema)
        if self._serving() == before:
            self.do(self.client, self.collection, arguments, lambda: None)
        self.client.close()
        self._salts = self._salts[::-1]
        self.model = WordDirections(salt=self._salts[0])
        self.client = self.site.client(self.site.application("reembed-parent"), embedding_model=self.model)
        self.collection.embeddings.fill()
        self.collection.embeddings.drop(before, force=True)

    def check(self) -> None:
        self._check_serving()
        check_answers(self.collection, self.texts, WORDS, self.chance)

    @property
    def _before(self) -> int:
        """The number of the vectors of the model that this process has."""
        sets = {entry.model: entry.version for entry in self.collection.embeddings.list()}
        return int(sets[self.model.identity.model])

    def _serving(self) -> int:
        with connected(self.site.url) as connection:
            return serving_version(connection, self.names)

    def _check_serving(self) -> None:
        version, before = self._serving(), self._before
        model = self.model if version == before else WordDirections(salt=self._salts[1])
        check_stored(self.site.url, self.names, [self.texts], model, version=version)


class Indexing(Work):
    """A folder indexed in which most files have changed."""

    name = "index"
    what = "a folder indexed in which most files have changed"
    deletes = False

    def __init__(self, site: Site, chance: random.Random) -> None:
        super().__init__(site, chance)
        self.folder = StirredFolder(site.new_folder(self.name), chance)

    def limits(self) -> Limits:
        return {
            "semlex.ingest.run": {"BATCH_CHUNKS": self.chance.choice((1, 10, 10_000))},
            "semlex.store.write.deletes": {"BATCH_DOCUMENTS": 2},
        }

    def draw(self) -> str:
        if self.chance.random() < 0.2:
            self.drop()
        self.folder.stir(deletes=self.deletes)
        return str(self.folder.root)

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client, acknowledge
        collection.index(arguments, **SIZES)  # type: ignore[arg-type]

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del acknowledged, arguments
        check_files(self.site.url, self.names, self.folder, self.model, complete=False)

    def finish(self, arguments: Any) -> None:
        self.do(self.client, self.collection, arguments, lambda: None)

    def check(self) -> None:
        check_files(self.site.url, self.names, self.folder, self.model, complete=True)
        self._check_words()

    def _check_words(self) -> None:
        """Check that a word of one section is found where that is stored, and nowhere else."""
        stored = Counter(self.folder.digests().values())
        for word, digest in self.chance.sample(sorted(self.folder.words.items()), 3):
            hits = self.collection.search(word, 10, mode="keyword")
            is_right = len(hits) == stored[digest] and all(word in hit.content for hit in hits)
            expect(is_right, "wrong", f"a word of {stored[digest]} files is found {len(hits)} times")


class Syncing(Indexing):
    """A folder kept in step: files changed, made, moved and deleted."""

    name = "sync"
    what = "a folder kept in step whose files were changed, made, moved and deleted"
    deletes = True

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del client, acknowledge
        collection.sync(arguments, **SIZES)  # type: ignore[arg-type]
