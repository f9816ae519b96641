"""What a check of a collection gets, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from semlex.types.checkups import Finding, Looked, NotChecked, of_collection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semlex.diagnostics.doctor import ModelExamination
    from semlex.store.postgres.connection import Connection
    from semlex.store.schema.collection import CollectionInfo, EmbeddingVersion
    from semlex.types.checkups import Severity


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What is known of the models of this machine.

    Attributes:
        tried: The embedding model that is configured here, after it was tried, or None.
        dimensions: To which its vectors are cut here, or None.
        is_said: Whether it is for every collection: a default gives way to a collection's own model.
        is_same: Whether a name of the user's is a stored one.
        stored_problem: Why a model that a collection names cannot be used here, as far as that is known without
            opening it; None for one that can.
    """

    tried: ModelExamination | None
    dimensions: int | None
    is_said: bool
    is_same: Callable[[str, str], bool]
    stored_problem: Callable[[EmbeddingVersion], str | None]


@dataclass(slots=True)
class Subject:
    """A collection under a check.

    Attributes:
        collection: As it is stored.
        models: Of this machine.
        check: Name of the check.
        given: See `connection`.
        findings: What it has found.
        not_checked: What it could not look at.
        looked_at: What was a sample, and what was measured.
    """

    collection: CollectionInfo
    models: ModelFacts
    check: str
    given: Connection | None = None
    findings: list[Finding] = field(default_factory=list)
    not_checked: list[NotChecked] = field(default_factory=list)
    looked_at: list[Looked] = field(default_factory=list)

    @property
    def connection(self) -> Connection:
        """In a transaction of this check's own."""
        assert self.given is not None  # noqa: S101 - it has begun
        return self.given

    def begun(self, connection: Connection) -> Subject:
        """The same with a connection, of which nothing is known yet."""
        return Subject(self.collection, self.models, self.check, connection)

    @property
    def where(self) -> str:
        """The collection in words."""
        return of_collection(self.collection.names.schema, self.collection.names.collection)

    def command(self, words: str) -> str:
        """A command line for this collection."""
        return f"semlex {words} --collection {self.collection.names.collection}"

    def find(self, code: str, severity: Severity, what: str, remedy: str, command: str | None = None) -> None:
        """Notes a finding."""
        self.findings.append(Finding(code, severity, self.where, what, remedy, command))

    def skip(self, reason: str) -> None:
        """Notes that the check cannot be made."""
        self.not_checked.append(NotChecked(self.check, self.where, reason))

    def note(self, what: str) -> None:
        """Notes what was looked at."""
        self.looked_at.append(Looked(self.check, self.where, what))


class Check(NamedTuple):
    """A check of a collection.

    Attributes:
        name: What it looks at.
        work: Notes what it finds.
    """

    name: str
    work: Callable[[Subject], Awaitable[None]]
