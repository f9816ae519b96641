"""The work that `semlex prove` interrupts by a kill, and the states in which it may leave a collection."""

from __future__ import annotations

from functools import reduce
from importlib.util import find_spec
from itertools import accumulate, combinations
from operator import or_
from typing import TYPE_CHECKING, Any

from semlex.proof.check import check_answers, check_stored, expect
from semlex.proof.kills import Killed, Limits, Task
from semlex.proof.texts import WordDirections, documents
from semlex.store.proving import connected, end_job_leases, end_leases, job_states, serving_version
from semlex.store.write.copy import BulkIngestConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCH = 20  # rows of a transaction of a load


def without(texts: dict[str, str], ids: Sequence[str]) -> dict[str, str]:
    """Return the texts without those of some ids."""
    return {one: text for one, text in texts.items() if one not in ids}


def states_after(done: int, batches: Sequence[dict[str, str]], texts: dict[str, str]) -> list[dict[str, str]]:
    """Return the states that at least `done` of the batches, written in any order, may leave."""
    counts = range(done, len(batches) + 1)
    return [reduce(or_, chosen, texts) for count in counts for chosen in combinations(batches, count)]


class Adding(Killed):
    """Kill a process that adds documents in batches: new ones, and replacements of stored ones."""

    name = "kill-add"
    what = "documents added in batches, some of which replace stored ones"

    def draw(self) -> list[dict[str, str]]:
        if self.chance.random() < 0.1:
            self.drop()
        # Few rows travel as arrays, many by COPY.
        return [self.some_texts(self.chance.choice((1, 8, 80))) for _ in range(3)]

    @staticmethod
    def do(task: Task) -> None:
        for batch in task.arguments:
            task.collection.add_documents(documents(batch))
            task.acknowledge()

    def states(self, arguments: Any) -> list[dict[str, str]]:
        return list(accumulate(arguments, or_, initial=self.texts))


class Deleting(Killed):
    """Kill a process that deletes documents in batches."""

    name = "kill-delete"
    what = "documents deleted in batches"

    def draw(self) -> list[list[str]]:
        self.add(self.some_texts(40))
        chosen = self.chance.sample(sorted(self.texts), 30)
        return [chosen[:1], chosen[1:10], chosen[10:]]

    @staticmethod
    def do(task: Task) -> None:
        for batch in task.arguments:
            task.collection.delete(batch)
            task.acknowledge()

    def states(self, arguments: Any) -> list[dict[str, str]]:
        return list(accumulate(arguments, without, initial=self.texts))


class Loading(Killed):
    """Kill a process that loads rows with vectors by COPY, in some tries into an empty collection."""

    name = "kill-load"
    what = "rows with vectors loaded by COPY, in several transactions"
    bulk = BulkIngestConfig(batch_size=BATCH, small_batch_rows=0, copy_block_bytes=64 * 1024)

    def draw(self) -> dict[str, str]:
        if self.chance.random() < 0.3:
            self.drop()
        return self.some_texts(3 * BATCH)

    @staticmethod
    def do(task: Task) -> None:
        ids, texts = list(task.arguments), list(task.arguments.values())
        rows = {"id": ids, "text": texts, "vector": WordDirections().embed_documents(texts)}
        task.collection.tables.load(rows, progress=lambda _: task.acknowledge())

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        # Batches are written side by side: each is stored as a whole, or not at all.
        rows = list(arguments.items())
        batches = [dict(rows[start : start + BATCH]) for start in range(0, len(rows), BATCH)]
        check_stored(self.site.url, self.names, states_after(acknowledged, batches, self.texts), self.model)

    def states(self, arguments: Any) -> list[dict[str, str]]:
        return [self.texts, {**self.texts, **arguments}]


class Optimizing(Killed):
    """Kill a process that merges many small segments of the keyword index into few."""

    name = "kill-optimize"
    what = "small segments of the keyword index merged"

    def draw(self) -> None:
        if not self.texts:
            self.add(self.some_texts(60))
        for _ in range(3):
            self.add(self.some_texts(2))
        gone = self.chance.sample(sorted(self.texts), 3)
        self.collection.delete(gone)
        self.texts = without(self.texts, gone)

    @staticmethod
    def do(task: Task) -> None:
        task.collection.indexes.optimize()
        task.acknowledge()


class Rebuilding(Optimizing):
    """Kill a process that builds a second keyword index beside the one in use, and switches to it."""

    name = "kill-rebuild"
    what = "a second keyword index built beside the one in use, then used instead"

    def limits(self) -> Limits:
        return {"semlex.store.keyword.bm25.rebuild": {"PAGE_ROWS": 20}}

    @staticmethod
    def do(task: Task) -> None:
        task.collection.indexes.rebuild_keyword()
        task.acknowledge()


class Reembedding(Killed):
    """Kill a process that makes vectors of another embedding model beside those in use, and switches to them."""

    name = "kill-reembed"
    what = "vectors of another embedding model made beside those in use, then used instead"

    def begin(self) -> None:
        super().begin()
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
    def do(task: Task) -> None:
        task.collection.embeddings.change(WordDirections(salt=task.arguments))
        task.acknowledge()

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del acknowledged, arguments
        self._check_serving()
        if self._serving() == self._before:
            # A client with the old model goes on to write and to search.
            self.add(self.some_texts(3))
            check_answers(self.collection, self.texts, self.chance)

    def finish(self, arguments: Any) -> None:
        before = self._before
        with connected(self.site.url) as connection:
            end_leases(connection, self.names.schema)
        if self._serving() == before:
            self.do(Task(self.client, self.collection, arguments))
        self.client.close()
        self._salts = self._salts[::-1]
        self.model = WordDirections(salt=self._salts[0])
        self.client = self.site.client(self.site.application("reembed-parent"), embedding_model=self.model)
        self.collection.embeddings.fill()
        self.collection.embeddings.drop(before, force=True)

    def check(self) -> None:
        self._check_serving()
        check_answers(self.collection, self.texts, self.chance)

    @property
    def _before(self) -> int:
        """The version of the vectors that this process's model made."""
        sets = {entry.model: entry.version for entry in self.collection.embeddings.list()}
        return int(sets[self.model.identity.model])

    def _serving(self) -> int:
        with connected(self.site.url) as connection:
            return serving_version(connection, self.names)

    def _check_serving(self) -> None:
        version, before = self._serving(), self._before
        model = self.model if version == before else WordDirections(salt=self._salts[1])
        check_stored(self.site.url, self.names, [self.texts], model, version=version)


BEFORE, FROM_ROWS = 70, 80


class Building(Killed):
    """Kill a process during a load, or while it builds indexes in the background after the load."""

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
    def do(task: Task) -> None:
        task.collection.add_documents(documents(task.arguments))
        task.acknowledge()
        task.collection.indexes.wait()

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


JOBS = 4
DAY = 86_400.0


class Working(Killed):
    """Kill a worker that runs jobs which add documents."""

    name = "kill-worker"
    what = "a worker with jobs that add documents; another one completes them"

    def draw(self) -> list[dict[str, str]]:
        # Ids of their own: jobs of one collection may be done in any order.
        rows = list(self.some_texts(3 * JOBS).items())
        batches = [dict(rows[start::JOBS]) for start in range(JOBS)]
        self._jobs = [self.collection.jobs.submit("add", {"documents": documents(one)}).id for one in batches]
        return batches

    @staticmethod
    def do(task: Task) -> None:
        # With a limit, it leaves followed tables alone.
        task.client.work(limit=len(task.arguments), lease=DAY)
        task.acknowledge()

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del acknowledged
        done = list(self._states().values()).count("done")
        check_stored(self.site.url, self.names, states_after(done, arguments, self.texts), self.model)

    def finish(self, arguments: Any) -> None:
        with connected(self.site.url) as connection:
            end_job_leases(connection, self.names.schema)
        left = JOBS - list(self._states().values()).count("done")
        if left:
            self.client.work(limit=left, lease=DAY)
        self.texts = self.states(arguments)[-1]

    def states(self, arguments: Any) -> list[dict[str, str]]:
        return [self.texts, reduce(or_, arguments, self.texts)]

    def check(self) -> None:
        left = {state for state in self._states().values() if state != "done"}
        expect(not left, "lost", f"jobs that are not done: {sorted(left)}")
        super().check()

    def _states(self) -> dict[str, str]:
        with connected(self.site.url) as connection:
            return job_states(connection, self.names.schema, self._jobs)


DUMPED_TEXTS = 100


class Restoring(Killed):
    """Kill a process that restores a dump into a new collection."""

    name = "kill-restore"
    what = "a dump restored into a new collection"
    needs = "" if find_spec("pyarrow") else "needs pyarrow, as dumps are Parquet (pip install semlex[arrow])"

    def begin(self) -> None:
        super().begin()
        self._folder = self.site.new_folder("dump")
        self._dumped = self.some_texts(DUMPED_TEXTS)
        source = self.client.collection(f"{self.names.collection}_source")
        source.add_texts(list(self._dumped.values()), ids=list(self._dumped))
        source.tables.dump(self._folder)

    def draw(self) -> tuple[str, str]:
        self.drop()
        return str(self._folder), self.names.collection

    @staticmethod
    def do(task: Task) -> None:
        task.client.restore(*task.arguments)
        task.acknowledge()

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del arguments
        states = [{}, self._dumped][acknowledged:]
        self._restored = check_stored(self.site.url, self.names, states, self.model)

    def finish(self, arguments: Any) -> None:
        if not self._restored:
            self.do(Task(self.client, self.collection, arguments))
        self.texts = self._dumped
