"""What a knowledge base is put together of, before anything is opened."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError
from semlex.store.postgres.roles import checked_role
from semlex.store.schema.names import Names, checked_identifier

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from semlex.parameters import CollectionOptions

MAX_COLLECTIONS = 100


@dataclass(frozen=True, eq=False, slots=True)
class Arguments:
    """Arguments of a client; one object for all collections that were added after them."""

    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A collection that was added.

    Attributes:
        label: Its name in the knowledge base.
        names: Its tables.
        role: Its role, or None.
        options: For a new one.
        create: Whether it is made when it does not exist.
        calibration: File of its curve of confidence, or None for the stored one.
        server: Arguments of its client that say which server.
        models: Those that say which models.
    """

    label: str
    names: Names
    role: str | None
    options: CollectionOptions
    create: bool
    calibration: str | PathLike[str] | None
    server: Arguments
    models: Arguments


@dataclass(frozen=True, slots=True)
class KnowledgePlan:
    """The collections, and what holds for the next one.

    Attributes:
        entries: In the order in which they were added.
        server: As `Entry.server`.
        models: As `Entry.models`.
        schema: Of the next one.
        role: Of the next one.
    """

    entries: tuple[Entry, ...] = ()
    server: Arguments = field(default_factory=Arguments)
    models: Arguments = field(default_factory=Arguments)
    schema: str = "semlex"
    role: str | None = None

    def adding(
        self,
        name: str,
        options: CollectionOptions,
        *,
        label: str | None,
        schema: str | None,
        role: str | None,
        create: bool,
        calibration: str | PathLike[str] | None,
    ) -> KnowledgePlan:
        """The plan with one more collection; the arguments are those of `KnowledgeBase.add`."""
        names = Names(self.schema if schema is None else schema, name)
        called = checked_identifier("label", name if label is None else label)
        for other in self.entries:
            if (other.names, other.server) == (names, self.server):
                raise ConfigurationError(
                    f"collection {name!r} of schema {names.schema!r} was added before: leave it out"
                )
            if other.label == called:
                raise ConfigurationError(f"another collection is called {called!r} here: give this one a label=")
        if len(self.entries) == MAX_COLLECTIONS:
            raise ConfigurationError(f"a knowledge base has at most {MAX_COLLECTIONS} collections")
        taken = self.role if role is None else checked_role(role)
        entry = Entry(called, names, taken, options, create, calibration, self.server, self.models)
        return replace(self, entries=(*self.entries, entry))
