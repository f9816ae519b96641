"""The collections of a client as far as an assistant reaches them, and documents by the names that it knows."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

from semlex.chat.untrusted import visible
from semlex.errors import ConfigurationError
from semlex.server.mcp.remedies import in_tools
from semlex.server.mcp.table import offered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from semlex.retriever.client import Client
    from semlex.retriever.collection import Collection
    from semlex.server.access.rights import Caller
    from semlex.server.mcp.access import Access
    from semlex.server.mcp.table import Offer

SHOWN_NAMES = 20


class Reach:
    """What tools work on."""

    def __init__(
        self,
        client: Client | Callable[[], AbstractContextManager[Client]],
        access: Access,
        default: Callable[[], str] | None = None,
        calibration: Callable[[str], Path | None] = lambda _name: None,
    ) -> None:
        self._lend = client if callable(client) else lambda: nullcontext(client)
        self._access, self._default, self._calibration = access, default, calibration
        self._serving: ContextVar[Client] = ContextVar("serving")
        self._asking: ContextVar[Access] = ContextVar("asking", default=access)
        self._caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
        # Names that are known to be there, of one client.
        self._known: set[str] = set()
        self._known_to: Client | None = None

    @property
    def client(self) -> Client:
        """The client that serves the request."""
        return self._serving.get()

    @property
    def access(self) -> Access:
        """What is within reach of whoever asks at the moment."""
        return self._asking.get()

    @property
    def offered(self) -> dict[str, Offer]:
        """The tools of whoever asks at the moment, by name."""
        return offered(self.access)

    @contextmanager
    def asked_by(self, caller: Caller | None) -> Iterator[None]:
        """Narrows what is within reach, for one request."""
        with self._lend() as client:
            if client is not self._known_to:
                self._known_to = client
                self.forget()
            serving = self._serving.set(client)
            asking = self._asking.set(self._access if caller is None else self._access.narrowed(caller))
            known_as = self._caller.set(caller)
            try:
                yield
            finally:
                self._caller.reset(known_as)
                self._asking.reset(asking)
                self._serving.reset(serving)

    def said(self, message: str) -> str:
        """What the library says, in the words of an assistant."""
        return in_tools(visible(message), self.offered)

    def remedy(self, offer: Offer) -> str:
        """Who can let an assistant call a tool that it may not call, and how."""
        if not self._access.may(offer.rights):
            return "whoever starts this server can add --allow-writes"
        caller = self._caller.get()
        if caller is None or not caller.name:  # everybody has the same rights
            return f"whoever starts this server can add --rights {offer.rights}"
        return (
            f"it needs a token with the right {offer.rights!r}, and this one has {caller.rights!r}; whoever runs this "
            f"server can make one: semlex serve token add NAME --rights {offer.rights} (with the server's --token-file)"
        )

    async def names(self) -> list[str]:
        """The collections that there are, by name."""
        return [listed.name for listed in await self.client.collections() if self.access.sees(listed.name)]

    async def collection(self, name: str | None, *, create: bool = False) -> Collection:
        """A collection by its name; where none is given, the server's own, else the only one."""
        seen = self.access.collections
        if name is None and seen is not None and len(seen) == 1:
            (name,) = seen  # without a look at what there is
        if name is not None and name in self._known and self.access.sees(name):
            return self._opened(name)
        names = await self.names()
        if name is None:
            name = self._meant(names, create=create)
        if name in names:
            self._known.add(name)
            return self._opened(name)
        if not create or not self.access.sees(name):
            raise self.missing(name, names)
        return self._opened(name, create=True)

    def _opened(self, name: str, *, create: bool = False) -> Collection:
        return self.client.collection(name, create=create, calibration=self._calibration(name))

    def _meant(self, names: list[str], *, create: bool) -> str:
        """The collection of whoever names none."""
        default = None if self._default is None else self._default()
        if default in names:
            return default
        if len(names) == 1:
            return names[0]
        if create and default is not None and self.access.sees(default):
            return default
        raise ConfigurationError(f"say which collection: {_listed(names)}")

    def missing(self, name: str, names: list[str]) -> ConfigurationError:
        """The error of a collection that is not there, or is out of reach."""
        return ConfigurationError(f"there is no collection {name[:60]!a} here; {_listed(names)}")

    def forget(self) -> None:
        """Looks anew which collections there are: one that was known is gone."""
        self._known.clear()


def _listed(names: list[str]) -> str:
    if not names:
        return "there are no collections yet: documents have to be indexed first"
    more = len(names) - SHOWN_NAMES
    return f"collections: {', '.join(names[:SHOWN_NAMES])}" + (f" and {more} more" if more > 0 else "")
