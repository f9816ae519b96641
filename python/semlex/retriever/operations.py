"""All operations that the command line, HTTP and MCP offer: the name of each operation, with its method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from semlex.options.declare import Rights, operations_of
from semlex.retriever.client import Client
from semlex.retriever.collection import Collection
from semlex.retriever.documents import Documents
from semlex.retriever.embeddings import Embeddings
from semlex.retriever.fields import Fields
from semlex.retriever.indexes import Indexes
from semlex.retriever.jobs import Job, Jobs
from semlex.retriever.queries import Queries
from semlex.retriever.tables import Tables

# Methods load what they need when they are first called. Servers, and other programs with an event loop, import this
# module, which loads all of it beforehand.
for _needed in (
    *("answering.answer", "answering.context", "answering.questions"),
    *("diagnostics.checkup", "diagnostics.diagnosis", "diagnostics.doctor", "diagnostics.status"),
    *("ingest.sync", "ingest.watch", "jobs.kinds", "jobs.worker", "maintenance.restore", "search.why"),
):
    import_module(f"semlex.{_needed}")

OWNERS = (Client, Collection, Documents, Embeddings, Fields, Indexes, Jobs, Queries, Tables, Job)


@dataclass(frozen=True, slots=True)
class OfferedMethod:
    """A method that the interfaces (command line, HTTP, MCP) offer.

    Attributes:
        name: Name of the operation, one word or two.
        rights: Rights that a caller needs.
        owner: The class that has the method.
        method: The method, with its declared arguments (`semlex.options.declare.arguments_of`).
    """

    name: str
    rights: Rights
    owner: type
    method: Callable[..., Any]


OPERATIONS: dict[str, OfferedMethod] = {
    name: OfferedMethod(name, marked.rights, owner, getattr(owner, attribute))
    for owner in OWNERS
    for name, (attribute, marked) in operations_of(owner).items()
}
