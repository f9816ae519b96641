"""Scenarios, whose tries disturb semlex and then check that no data is lost, doubled or wrong; and their servers."""

from __future__ import annotations

import itertools
import secrets
import shutil
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from semlex.proof.check import check_stored
from semlex.proof.children import Child
from semlex.proof.texts import WordDirections
from semlex.retriever.client import Client
from semlex.retriever.synchronous import SyncClient
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.store.proving import Ground, connected, named_clients, set_server
from semlex.store.schema.names import Names

if TYPE_CHECKING:
    import random
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Tries:
    """The result of a call of `Scenario.attempt`: its tries, and the number of kills, crashes and ended connections."""

    tries: int = 1
    kills: int = 0


class Scenario(ABC):
    """A scenario with its collection, used for one try after another; after a fault, a new one replaces it.

    Attributes:
        name: Its name, as ``--only`` takes it.
        group: Name of a group of scenarios that it belongs to; empty without a group.
        what: A sentence for the report.
        own_server: Whether it needs a server that the proof starts itself.
        needs: What this machine lacks for it; empty if nothing.
        weight: Its share of the running time; most scenarios have 1.
        names: Names of its collection's tables.
        texts: The texts that must be stored in the collection, by id.
        notes: Figures for the report.
        opened: Clients and processes that are closed when the scenario ends.
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
        """Open the connections and data that the tries need."""

    @abstractmethod
    def attempt(self) -> Tries:
        """Do one try; raise a `Fault` if the stored data or the answers are wrong."""

    def check_texts(self, url: str | None = None) -> None:
        """Check at the end of a try that exactly `texts` are stored, on the site's server or the one at `url`."""
        self.site.sabotage(self.names, url)
        check_stored(url or self.site.url, self.names, [self.texts], WordDirections())


SCHEMA = "semlex_proof"
CONNECTIONS = 6
# After a crash, a server asks the system to write everything, instead of each of its thousand files.
SETTINGS = {"recovery_init_sync_method": "syncfs"} if sys.platform == "linux" else {}


class Site:
    """A schema on the user's server, or on one that the proof starts; and a folder for files.

    Args:
        url: Address of the user's server; None: a new embedded server, which is removed afterwards.
        schema: Name of the schema; it must not exist.
        place: Folder in which new folders are made; None: the system's folder for temporary files.
        major: Version of the embedded servers.
        template: Function that makes the folder of an embedded server; None: the server makes it.
        sabotage: Called with an address and a collection before the last check of a try, to damage data on purpose.

    Attributes:
        facts: Versions and settings of the server.
    """

    def __init__(
        self,
        url: str | None = None,
        schema: str = SCHEMA,
        *,
        place: Path | None = None,
        major: int = 18,
        template: Callable[[Path], object] | None = None,
        sabotage: Callable[[str, Names], None] | None = None,
    ) -> None:
        self.is_own = url is None
        self._given, self.schema, self._major, self._template = url, schema, major, template
        self._place, self._sabotage = place, sabotage
        self._servers: dict[str, EmbeddedServer] = {}
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._clients = f"semlex-proof-{secrets.token_hex(3)}-"  # another proof on the server has other clients
        self.url = ""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="semlex-proof-", dir=self._place))
        self.folder.chmod(0o711)  # as root, a server runs under another account, which passes through
        try:
            self.url = self._given or self.server("main").url
            self._ground = Ground(self.url, self.schema, self._clients)
            self.facts = self._ground.facts()
            try:
                self._ground.create()
            except KeyboardInterrupt:
                if self._ground.is_made:
                    self._ground.remove()
                raise
        except BaseException:
            self._close_servers()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        Child.close_all()
        try:
            self._ground.remove()
        finally:
            self._close_servers()

    def _close_servers(self) -> None:
        for server in self._servers.values():
            server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def server(self, name: str) -> EmbeddedServer:
        """Return the embedded server of this name; the first call starts it."""
        with self._lock:
            if name not in self._servers:
                self._servers[name] = self._started(self.folder / name)
            return self._servers[name]

    def new_server(self, name: str, place: Path | None = None) -> EmbeddedServer:
        """Return a new server; the caller closes it."""
        return self._started((place or self.folder) / f"{name}-{next(self._numbers)}")

    def _started(self, folder: Path) -> EmbeddedServer:
        if self._template is not None:
            self._template(folder)
        server = EmbeddedServer(folder, major=self._major)
        server.start()
        with connected(server.url) as connection:
            set_server(connection, SETTINGS)
        return server

    def names(self, collection: str) -> Names:
        """Return the table names of a new collection."""
        return Names(self.schema, f"{collection}_{next(self._numbers)}")

    def new_folder(self, name: str) -> Path:
        """Return the path of a new folder for files, which does not exist yet."""
        return self.folder / f"{name}-{next(self._numbers)}"

    def client(self, application: str, url: str | None = None, **options: Any) -> SyncClient:
        """Return a client for the site's server; `application` names its connections."""
        return SyncClient(named_clients(url or self.url, application), **self._options(options))

    def async_client(self, application: str, url: str | None = None, **options: Any) -> Client:
        """Return an asynchronous client; otherwise as `client`."""
        return Client(named_clients(url or self.url, application), **self._options(options))

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        usual = {"embedding_model": WordDirections(), "max_connections": CONNECTIONS}
        return usual | {"schema": self.schema, "use_reranking": False} | options

    def application(self, scenario: str) -> str:
        """Return a new name for connections."""
        return f"{self._clients}{scenario}-{next(self._numbers)}"

    def sabotage(self, names: Names, url: str | None = None) -> None:
        """Let a test damage the data that a scenario is about to check."""
        if self._sabotage is not None:
            self._sabotage(url or self.url, names)
