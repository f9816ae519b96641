"""Run scenarios at the same time until the time is over, and count the faults that they find."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from semlex.clock import SYSTEM, Clock
from semlex.errors import ConfigurationError
from semlex.proof.check import LIMIT_SECONDS, Fault
from semlex.proof.clock_jumps import ClockJumps
from semlex.proof.damaged_rows import DamagedRows
from semlex.proof.folders import FolderHistories, Indexing, Syncing
from semlex.proof.followed_tables import Following, TableHistories
from semlex.proof.hostile import HostileValues
from semlex.proof.interruptions import BlackHole, Crashes, EndedBackends, Failovers, FullDisks, PoolerRestarts
from semlex.proof.killed_work import (
    Adding,
    Building,
    Deleting,
    Loading,
    Optimizing,
    Rebuilding,
    Reembedding,
    Restoring,
    Working,
)
from semlex.proof.report import ProofReport, ScenarioReport
from semlex.proof.scenarios import Scenario, Site, Tries
from semlex.proof.soak import Soak
from semlex.proof.together import Together
from semlex.store.postgres.addresses import describe

KINDS: dict[str, type[Scenario]] = {
    kind.name: kind
    for kind in (
        *(Indexing, Syncing, Adding, Deleting, Loading, Optimizing, Rebuilding, Reembedding),
        *(Building, Following, Working, Restoring),
        *(Crashes, Failovers, PoolerRestarts, FullDisks, ClockJumps, EndedBackends),
        *(Together, HostileValues, DamagedRows, BlackHole, FolderHistories, TableHistories, Soak),
    )
}


def chosen(only: Sequence[str]) -> list[type[Scenario]]:
    """Return the scenarios of these names and groups; all of them if none is named."""
    known = sorted({*KINDS, *(kind.group for kind in KINDS.values() if kind.group)})
    for name in only:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ";"
            raise ConfigurationError(f"unknown scenario {name!r}{hint} known: {', '.join(known)}")
    return [kind for kind in KINDS.values() if not only or kind.name in only or kind.group in only]


LOOK_SECONDS = 0.1
LANES = 2
DETAIL_LINES = 4
NEEDS_OWN = "runs only on servers that semlex starts itself: leave out --database and DATABASE_URL"


@dataclass
class Running:
    """One kind of scenario in a proof, with its report and whether it is running."""

    kind: type[Scenario]
    report: ScenarioReport
    scenario: Scenario | None = None
    made: int = 0  # scenarios so far; another one is made after a fault
    is_busy: bool = False
    is_given_up: bool = False
    began: float = 0.0
    lane: threading.Thread | None = None


@dataclass
class Proof:
    """Runs scenarios on a site, several at the same time.

    Args:
        site: An open site.
        kinds: The scenarios.
        seed: Seed of the random numbers from which each scenario draws its actions.
        seconds: After this time no try begins; each scenario has at least one try.
        lanes: Number of scenarios that run at the same time.
        tell: Called now and then with the current report.
    """

    site: Site
    kinds: Sequence[type[Scenario]]
    seed: int = 1
    seconds: float = 0.0
    lanes: int = LANES
    tell: Callable[[ProofReport, float], object] | None = None
    clock: Clock = SYSTEM
    _runs: list[Running] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _lanes: set[threading.Thread] = field(default_factory=set)
    _is_over: bool = False

    def run(self) -> ProofReport:
        """Run the scenarios; Ctrl-C ends them early, and the report says so."""
        left_out = {kind.name: kind.needs for kind in self.kinds if kind.needs}
        if not self.site.is_own:
            left_out |= {kind.name: NEEDS_OWN for kind in self.kinds if kind.own_server}
        wanted = [kind for kind in self.kinds if kind.name not in left_out]
        self._runs = [Running(kind, ScenarioReport(kind.name, kind.what)) for kind in wanted]
        report = ProofReport(
            "a new embedded server" if self.site.is_own else describe(self.site.url),
            self.site.facts,
            self.seed,
            [one.report for one in self._runs],
            left_out,
        )
        self._began = self.clock.monotonic()
        try:
            for _ in range(min(self.lanes, len(self._runs))):
                self._add_lane()
            self._wait(report)
        except KeyboardInterrupt:
            report.interrupted = True
        finally:
            self._is_over = True
            self._wait(report)  # for tries that have begun
        report.seconds = self.clock.monotonic() - self._began
        for one in self._runs:
            if not one.is_given_up:
                self._close(one)
        return report

    # --- lanes ----------------------------------------------------------------------------------------------------

    def _add_lane(self) -> None:
        lane = threading.Thread(target=self._work, daemon=True)
        self._lanes.add(lane)
        lane.start()

    def _work(self) -> None:
        while (running := self._next()) is not None:
            self._try(running)
            if running.is_given_up:
                return  # another lane has taken the place of this one

    def _next(self) -> Running | None:
        """Take the scenario that has had the least time for its weight; None if the proof is over."""
        with self._changed:
            while True:
                free = [one for one in self._runs if not one.is_busy and not one.is_given_up]
                if self._is_over:
                    return None
                if self.clock.monotonic() - self._began >= self.seconds:
                    free = [one for one in free if one.made == 0]
                    if not free:
                        return None
                if free:
                    running = min(free, key=lambda one: one.report.seconds / one.kind.weight)
                    running.is_busy, running.began = True, self.clock.monotonic()
                    running.lane = threading.current_thread()
                    running.made += running.scenario is None
                    return running
                self._changed.wait(LOOK_SECONDS)

    def _try(self, running: Running) -> None:
        report = running.report
        fault: Fault | None = None
        tries = Tries()
        try:
            if running.scenario is None:
                running.scenario = running.kind(self.site, random.Random(self._seed_of(running)))
                running.scenario.begin()
            tries = running.scenario.attempt()
        except Exception as error:  # noqa: BLE001 - whatever a try raises is a finding
            fault = _fault_of(error)
        with self._changed:
            if not running.is_given_up:
                report.tries += tries.tries
                report.kills += tries.kills
                report.seconds += self.clock.monotonic() - running.began
                if fault is not None:
                    report.add_fault(fault, self._seed_of(running))
        if fault is not None or running.is_given_up:
            self._close(running)
        with self._changed:
            running.is_busy = False
            self._changed.notify_all()

    def _seed_of(self, running: Running) -> str:
        return f"{self.seed}/{running.kind.name}/{running.made}"

    def _close(self, running: Running) -> None:
        scenario, running.scenario = running.scenario, None
        if scenario is None:
            return
        running.report.notes.update(scenario.notes)  # `+=` drops what is not above 0
        try:
            scenario.opened.close()
        except Exception as error:  # noqa: BLE001 - the other scenarios go on, and the report is printed
            running.report.add_fault(_fault_of(error), self._seed_of(running))

    # --- the main thread --------------------------------------------------------------------------------------------

    def _wait(self, report: ProofReport) -> None:
        while any(lane.is_alive() for lane in self._lanes):
            self._give_up_hung()
            if self.tell is not None:
                self.tell(report, self.clock.monotonic() - self._began)
            time.sleep(LOOK_SECONDS)

    def _give_up_hung(self) -> None:
        """Count a try that takes too long as hung; leave its thread alone and start another."""
        with self._changed:
            for one in self._runs:
                if one.is_busy and not one.is_given_up and self.clock.monotonic() - one.began > LIMIT_SECONDS:
                    one.is_given_up = True
                    self._lanes -= {one.lane}
                    one.report.tries += 1
                    one.report.add_fault(Fault("hung", f"a try took longer than {LIMIT_SECONDS:g} s"), str(self.seed))
                    self._add_lane()


def _fault_of(error: Exception) -> Fault:
    if isinstance(error, Fault):
        return error
    trace = "".join(traceback.format_exception(error)[-DETAIL_LINES:])
    return Fault("wrong", f"{type(error).__name__}: {error}\n{trace}")
