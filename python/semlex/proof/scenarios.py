"""A scenario: tries that do something terrible, and check afterwards that nothing is lost, doubled, wrong or hung."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from semlex.proof.site import Site


@dataclass(frozen=True, slots=True)
class Tries:
    """What a call of `Scenario.attempt` did: tries, and how many of them killed, crashed or ended something."""

    tries: int = 1
    kills: int = 0


class Scenario(ABC):
    """Goes on from try to try; after a fault another one is made, with a collection of its own."""

    def __init__(self, site: Site, chance: random.Random) -> None:
        self.site, self.chance = site, chance
        self.notes: Counter[str] = Counter()

    @abstractmethod
    def attempt(self) -> Tries:
        """Do one round; raise a `Fault` if something is not as it must be."""

    def close(self) -> None:  # noqa: B027 - most have opened nothing
        """Release what the scenario has opened."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of scenario.

    Attributes:
        name: Its name, as ``--only`` takes it.
        group: The group of several of them.
        what: A sentence for the report.
        make: Makes one.
        own_server: Whether it needs a server that the proof starts itself.
        needs: What this machine lacks for it; empty if nothing.
        weight: Its share of the time, beside 1 of others.
    """

    name: str
    group: str
    what: str
    make: Callable[[Site, random.Random], Any]
    own_server: bool = False
    needs: str = ""
    weight: float = 1.0
