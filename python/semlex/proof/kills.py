"""A process is killed (SIGKILL) during its work; the data it leaves is whole, and the next run completes the work."""

from __future__ import annotations

import os
import signal
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from semlex.proof.check import Fault, check_answers, check_stored
from semlex.proof.children import Child, Moments, kill_after, say, set_limits, until
from semlex.proof.scenarios import Scenario, Tries
from semlex.proof.texts import WordDirections, documents, draw_text
from semlex.retriever.synchronous import SyncClient, SyncCollection
from semlex.store.proving import backends, connected, is_made, named_clients
from semlex.store.write.copy import BulkIngestConfig

if TYPE_CHECKING:
    from semlex.store.schema.names import Names

IDS = 120
# Assumed number of moments and seconds of a run, until one has run to its end.
MOMENTS, SECONDS = 12, 0.05
LATER = 8
# Looks for a process's connections before giving up: a pooler keeps them.
POOLED_LOOKS = 500
Limits = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Task:
    """Work to do; `acknowledge` is called for each part that is done."""

    client: SyncClient
    collection: SyncCollection
    arguments: Any
    acknowledge: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Order:
    """The work of a process, and the moment or time at which it is killed.

    Attributes:
        moment: Number, from 1, of the moment (see `Moments`) at which it is killed; 0: at none.
        seconds: Time after which it is killed; None: not after a time.
    """

    url: str
    names: Names
    work: type[Killed]
    arguments: Any
    limits: Limits
    moment: int = 0
    seconds: float | None = None


def run(order: Order) -> None:
    """Do the ordered work, until it is done or this process is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which kills its children
    set_limits(order.limits)
    passed = 0

    def reached(_doing: str, _moment: str) -> None:
        nonlocal passed
        passed += 1
        if passed == order.moment:
            os.kill(os.getpid(), signal.SIGKILL)

    Moments(reached).watch()
    work, schema = order.work, order.names.schema
    with SyncClient(order.url, work.child_model(), use_reranking=False, schema=schema, max_connections=2) as client:
        began = time.monotonic()
        if order.seconds is not None:
            kill_after(order.seconds)
        collection = work.collection_of(client, order.names)
        work.do(Task(client, collection, order.arguments, partial(say, "acknowledged")))
        say(f"ended {passed} {time.monotonic() - began}")


class Killed(Scenario):
    """Work on a separate collection: a process is killed while it works, and the work is then repeated to its end."""

    group = "kill"
    weight = 2.0
    bulk: ClassVar[BulkIngestConfig] = BulkIngestConfig()

    def begin(self) -> None:
        self.client = self.site.client(self.site.application(f"{self.name}-parent"))
        self.opened.callback(lambda: self.client.close())  # noqa: PLW0108 - another one may have taken its place
        self.model = WordDirections()
        self._moments, self._seconds = MOMENTS, SECONDS
        self._is_known = False  # how many moments a run has, and how long it takes

    # --- what differs between works ---------------------------------------------------------------------------------

    @staticmethod
    def child_model() -> WordDirections | str:
        """Return the model of the process; by default the collection's."""
        return WordDirections()

    def limits(self) -> Limits:
        """Return values of module constants for the process, so small that little data reaches every moment."""
        return {}

    @abstractmethod
    def draw(self) -> Any:
        """Prepare a try; return the arguments of `do`."""

    @staticmethod
    @abstractmethod
    def do(task: Task) -> None:
        """Do the work, in this process or another."""

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        """Check the data that the killed process left; `acknowledged` is the number of parts that it reported done."""
        states = self.states(arguments)[acknowledged : acknowledged + 2]
        check_stored(self.site.url, self.names, states, self.model)

    def states(self, arguments: Any) -> list[dict[str, str]]:
        """Return the texts that must be stored before the work and after each of its parts."""
        del arguments
        return [self.texts] * 2

    def finish(self, arguments: Any) -> None:
        """Do the work again, to its end."""
        self.do(Task(self.client, self.collection, arguments))
        self.texts = self.states(arguments)[-1]

    def check(self) -> None:
        """Check that nothing is lost, doubled or wrong."""
        check_stored(self.site.url, self.names, [self.texts], self.model)
        check_answers(self.collection, self.texts, self.chance)

    # --- what works have in common ----------------------------------------------------------------------------------

    @classmethod
    def collection_of(cls, client: SyncClient, names: Names) -> SyncCollection:
        """Return the collection of the work."""
        return client.collection(names.collection, bulk=cls.bulk)

    @property
    def collection(self) -> SyncCollection:
        """The collection, as this process has opened it."""
        return self.collection_of(self.client, self.names)

    def some_texts(self, count: int) -> dict[str, str]:
        """Draw ids, many of which exist already, with new texts."""
        return {f"d{n}": draw_text(self.chance) for n in self.chance.sample(range(IDS), count)}

    def add(self, rows: Mapping[str, str]) -> None:
        """Store texts from this process."""
        self.collection.add_documents(documents(rows))
        self.texts = {**self.texts, **rows}

    def drop(self) -> None:
        """Drop the collection if it exists."""
        with connected(self.site.url) as connection:
            exists = is_made(connection, self.names)
        if exists:
            self.client.drop(self.names.collection)
        self.texts = {}

    # --- a try ------------------------------------------------------------------------------------------------------

    def attempt(self) -> Tries:
        arguments, application = self.draw(), self.site.application(self.name)
        order = self.order(application, arguments)
        with Child(run, order) as child:
            is_killed = self.is_killed(child, order)
            acknowledged = child.said.split().count("acknowledged")
        self.wait_for_backends(application)
        self.check_killed(acknowledged, arguments)
        self.finish(arguments)
        self.site.sabotage(self.names)
        self.check()
        return Tries(kills=int(is_killed))

    def order(self, application: str, arguments: Any, *, is_killed: bool = True) -> Order:
        """Return an order to work, by default until killed at a random moment or after a random time."""
        address = named_clients(self.site.url, application)
        order = Order(address, self.names, type(self), arguments, self.limits())
        if not is_killed:
            return order
        if self.chance.random() < 0.5:
            return replace(order, moment=self.chance.randint(1, self._moments))
        return replace(order, seconds=self.chance.uniform(0.0, self._seconds))

    def is_killed(self, child: Child, order: Order) -> bool:
        """Wait for the end of a process; return whether it was killed before its work was done."""
        code = child.ended()
        if code not in (0, -signal.SIGKILL):
            raise Fault("wrong", f"the process ended with exit code {code}: {child.said[-2000:]}")
        self._learn(order, child.said)
        return code != 0

    def _learn(self, order: Order, said: str) -> None:
        """Note how many moments and seconds complete runs take; until the first, allow a later kill each time."""
        ended = [line.split()[1:] for line in said.splitlines() if line.startswith("ended ")]
        for moments, seconds in ended:
            known = (self._moments, self._seconds) if self._is_known else (1, 0.0)
            self._moments, self._seconds = max(known[0], int(moments)), max(known[1], float(seconds))
            self._is_known = True
            self.notes["ended before the kill"] += bool(order.moment or order.seconds)
        if not self._is_known:
            self._moments = max(self._moments, order.moment + LATER)
            self._seconds = max(self._seconds, 1.5 * (order.seconds or 0.0))

    def wait_for_backends(self, application: str) -> None:
        """Wait until the backends of a killed process have ended, which commits or rolls back its last transaction."""
        looks = 0
        with connected(self.site.url) as connection:

            def are_gone() -> bool:
                nonlocal looks
                looks += 1
                return looks > POOLED_LOOKS or not backends(connection, application)

            until(are_gone, "the end of a killed process's connections")
