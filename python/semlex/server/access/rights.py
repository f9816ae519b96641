"""Callers, and what each may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from semlex.operations import OPERATIONS, Rights

ORDER: tuple[Rights, ...] = get_args(Rights)
NEEDED: dict[str, Rights] = {operation.name: operation.rights for operation in OPERATIONS}
# Kinds of jobs -> what they need. A job is work of an operation: it takes that operation's rights.
OF_JOBS: dict[str, Rights] = {
    "index": NEEDED["index"],
    "sync": NEEDED["sync"],
    "add": NEEDED["add documents"],
    "optimize": NEEDED["optimize"],
    "rechunk": NEEDED["rechunk"],
    "embed": NEEDED["embed"],
    "reembed": NEEDED["reembed"],
}


def needed_for(kind: str) -> Rights:
    """What a stored job of a kind needs; all rights, where a newer semlex has stored one that is not known here."""
    return OF_JOBS.get(kind, ORDER[-1])


class Reaching:
    """What anybody with rights and collections may do and see."""

    __slots__ = ()
    rights: Rights
    collections: frozenset[str] | None

    def may(self, needed: Rights) -> bool:
        """Whether the rights suffice."""
        return ORDER.index(self.rights) >= ORDER.index(needed)

    def sees(self, collection: str) -> bool:
        """Whether a collection is within reach, if it is there at all."""
        return self.collections is None or collection in self.collections


@dataclass(frozen=True, slots=True)
class Caller(Reaching):
    """Somebody who asks over a wire.

    Attributes:
        name: Of the token; "" for everybody, where there are no tokens.
        rights: The highest that it has, with those before it.
        collections: Names of the collections that it sees; None for all.
    """

    name: str
    rights: Rights
    collections: frozenset[str] | None = None
