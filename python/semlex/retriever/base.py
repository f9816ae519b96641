"""Base classes: an object that is opened and closed, and a retriever with its methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from semlex.filters.forms import Filters
    from semlex.types.documents import Document

CLOSED = "this client was closed; make another, or open it again with initialize()"
NOT_SENT = (
    "a retriever or client cannot be sent to another process: make it there, with the same arguments (a forked "
    "process can use the one of its parent, unless it was made with pool= or connection=)"
)
NOT_OPEN = "this object is not open yet: call initialize() (for a collection, open()) or a method that needs the server"


class Openable(ABC):
    """An object that is opened and closed, also by ``async with``."""

    @abstractmethod
    async def initialize(self) -> None:
        """Open the object; do nothing if it is open."""

    @abstractmethod
    async def close(self) -> None:
        """Close the object."""

    async def _close_after(self, error: BaseException | None) -> None:
        """Close the object at the end of an ``async with`` block; `error` is the error that ended the block, if any."""
        del error
        await self.close()

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        await self._close_after(error)


class DocumentRetriever(ABC):
    """Base class of retrievers, with the methods that applications call; subclass it to write your own."""

    @abstractmethod
    async def search(self, query: str, top_k: int = 5, filters: Filters | None = None) -> Sequence[Document]:
        """Return the documents that fit a query best, best first."""

    @abstractmethod
    async def add_documents(self, documents: Iterable[Document]) -> list[str]:
        """Store documents and return their ids."""
