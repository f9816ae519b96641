"""A scenario: tries that do something terrible, and check afterwards that nothing is lost, doubled, wrong or hung."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from semlex.proof.check import check_stored
from semlex.proof.texts import WordDirections

if TYPE_CHECKING:
    import random

    from semlex.proof.site import Site


@dataclass(frozen=True, slots=True)
class Tries:
    """What a call of `Scenario.attempt` did: its tries, and the number of kills, crashes and ended connections."""

    tries: int = 1
    kills: int = 0


class Scenario(ABC):
    """One scenario, kept from try to try; after a fault another is made, with a new collection.

    Attributes:
        name: Its name, as ``--only`` takes it.
        group: The name of several scenarios; empty if it is alone.
        what: A sentence for the report.
        own_server: Whether it needs a server that the proof starts itself.
        needs: What this machine lacks for it; empty if nothing.
        weight: Its share of the time, beside 1 of others.
        names: The tables of its collection.
        texts: What must be stored in it, by the ids.
        notes: Figures for the report.
        opened: What ends with it.
    """

    name: ClassVar[str]
    group: ClassVar[str] = ""
    what: ClassVar[str]
    own_server: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    weight: ClassVar[float] = 1.0

    def __init__(self, site: Site, chance: random.Random) -> None:
        self.site, self.chance = site, chance
        self.names = site.names(self.name.replace("-", "_"))
        self.texts: dict[str, str] = {}
        self.notes: Counter[str] = Counter()
        self.opened = ExitStack()

    def begin(self) -> None:  # noqa: B027 - some need nothing
        """Open what the tries need."""

    @abstractmethod
    def attempt(self) -> Tries:
        """Do one try; raise a `Fault` if the stored data or the answers are wrong."""

    def check_texts(self, url: str | None = None) -> None:
        """Check at the end of a try that exactly the texts are stored, at the site's server or another one."""
        self.site.sabotage(self.names, url)
        check_stored(url or self.site.url, self.names, [self.texts], WordDirections())
