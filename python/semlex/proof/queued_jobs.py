"""Work of a worker that is killed: its jobs are done by another one, each with its whole effect."""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from operator import or_
from typing import TYPE_CHECKING, Any

from semlex.proof.check import check_stored
from semlex.proof.faults import expect
from semlex.proof.kills import Killed
from semlex.proof.texts import documents
from semlex.store.proving.ground import connected, end_job_leases, job_states

if TYPE_CHECKING:
    from semlex.proof.kills import Acknowledge
    from semlex.retriever.synchronous import SyncClient, SyncCollection

JOBS = 4
DAY = 86_400.0


class Working(Killed):
    """A worker that adds the documents of jobs."""

    name = "kill-worker"
    what = "a worker with jobs that add documents; another one completes them"

    def draw(self) -> list[dict[str, str]]:
        # Ids of their own: jobs of one collection may be done in any order.
        rows = list(self.some_texts(3 * JOBS).items())
        batches = [dict(rows[start::JOBS]) for start in range(JOBS)]
        self._jobs = [self.collection.jobs.submit("add", {"documents": documents(one)}).id for one in batches]
        return batches

    @staticmethod
    def do(client: SyncClient, collection: SyncCollection, arguments: Any, acknowledge: Acknowledge) -> None:
        del collection
        # With a limit, it leaves followed tables alone.
        client.work(limit=len(arguments), lease=DAY)
        acknowledge()

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del acknowledged
        done = list(self._states().values()).count("done")
        chosen = [some for count in range(done, JOBS + 1) for some in combinations(arguments, count)]
        states = [reduce(or_, some, self.texts) for some in chosen]
        check_stored(self.site.url, self.names, states, self.model)

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
