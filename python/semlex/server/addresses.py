"""Check the addresses that the server listens on, its host names, and the origins whose pages may call it."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from semlex.errors import ConfigurationError
from semlex.server.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Scope


LOCAL = ("localhost", "127.0.0.1", "::1")
# Addresses that mean all of this machine's -> the loopback address to send requests to.
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - a key
# A browser leaves these out of an origin.
DEFAULT_PORTS = {"http": 80, "https": 443}
# Process supervisors request these by any address, such as that of a pod, so their host is not checked.
PROBE_PATHS = frozenset({"/healthz", "/readyz"})
# Path of the files of the page.
PLACE = "/page/"
HOST_NAME = re.compile(r"[a-z0-9._:-]+")


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def address_to_ask(listening: socket.socket) -> str:
    """Return the address under which this machine reaches a server; loopback for one that listens on every address."""
    host, port = listening.getsockname()[:2]
    host = EVERY_ADDRESS.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def places(listening: socket.socket) -> str:
    """Return where a server listens, as text for people."""
    every = listening.getsockname()[0] in EVERY_ADDRESS
    return f"{address_to_ask(listening)}{' and every address of this machine' if every else ''}"


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; clients that connect before the server runs wait for it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):  # the second is of a name that cannot be one
        raise ConfigurationError(
            f"host {host[:80]!a} is not an address of this machine; give --host 127.0.0.1, or one of its addresses"
        ) from None
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()
    except OSError as error:
        made.close()
        raise ConfigurationError(
            f"{host}:{port} cannot be listened on ({error.strerror}); choose another port with --port, 0 for any that "
            "is free, or another address with --host"
        ) from None
    made.setblocking(False)
    return made


def origin_of(text: str) -> str | None:
    """Return an origin as browsers write it: lower case, without a slash and without the scheme's default port."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    rest = (parts.path.removesuffix("/"), parts.query, parts.fragment, parts.username, parts.password)
    if parts.scheme not in DEFAULT_PORTS or any(rest) or not HOST_NAME.fullmatch(host):
        return None
    name = _plain(host) or host
    shown = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{shown}{'' if port in (None, DEFAULT_PORTS[parts.scheme]) else f':{port}'}"


def is_page(path: str) -> bool:
    """Return whether a path is a file of the web page; these files contain no data of collections."""
    return path == "/" or path.startswith(PLACE)


# A stranger's page can make a browser send requests to a server on the same machine, under a name of the stranger's
# that resolves to 127.0.0.1. The browser reveals both: the name in `Host`, the page's origin in `Origin`. For images,
# scripts and frames of other sites it sends no origin, but `Sec-Fetch-Site`. A page from another port of this machine
# has another origin, too: any user may have started the program there.
class Addresses:
    """The host names and page origins that the server accepts."""

    def __init__(
        self,
        host: str,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
        remedy: str = "start the server with --origin ORIGIN",
    ) -> None:
        self._given = {_host(name.encode()) or _plain(name) for name in hosts} - {None}
        # No stranger's name leads a browser to one of loopback.
        self._names = self._given | {_plain(name) for name in LOCAL}
        own = _plain(host)
        if own is not None and own not in EVERY_ADDRESS:
            self._names.add(own)
        self._origins = frozenset(origins)
        self._remedy = remedy

    def check(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> None:
        """Refuse a request under an unknown host name, or from a page of an unknown origin."""
        hosts, origins = headers.get(b"host", []), headers.get(b"origin", [])
        if scope["path"] not in PROBE_PATHS and not self.knows_host(hosts):
            raise Problem(
                421,
                "the name in the header Host is not a name of this server; start the server with --allow-host NAME",
                kind="unknown-host",
            )
        is_named = self.named_origin(origins) is not None
        if not self.knows_origin(origins, hosts) or (not is_named and is_foreign(scope, headers)):
            raise Problem(403, f"pages of this origin may not call this server; {self._remedy}", kind="unknown-origin")

    def knows_host(self, values: list[bytes]) -> bool:
        """Return whether the ``Host`` values of a request are exactly one known name."""
        if len(values) != 1:
            return False
        return _host(values[0]) in self._names

    def knows_origin(self, values: list[bytes], hosts: list[bytes]) -> bool:
        """Return whether the origin is the server's own or a known one, or missing: only web pages send one."""
        if not values or self.named_origin(values) is not None:
            return True
        if len(values) != 1 or len(hosts) != 1:
            return False
        schemes = DEFAULT_PORTS if _host(hosts[0]) in self._given else ("http",)
        own = {origin_of(f"{scheme}://{hosts[0].decode('latin-1')}") for scheme in schemes}
        return values[0].decode("latin-1").lower() in own

    def named_origin(self, values: list[bytes]) -> bytes | None:
        """Return the origin of the page that sent the request if it is one of the named origins, else None."""
        return values[0] if len(values) == 1 and values[0].decode("latin-1").lower() in self._origins else None


def is_foreign(scope: Scope, headers: dict[bytes, list[bytes]]) -> bool:
    """Return whether ``Sec-Fetch-…`` shows that another site caused the request; opening the web page is exempt."""
    if not {b"cross-site", b"same-site"}.intersection(headers.get(b"sec-fetch-site", [])):
        return False
    doing = (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest"))
    return not (scope["method"] == "GET" and is_page(scope["path"]) and doing == ([b"navigate"], [b"document"]))


def _host(value: bytes) -> str | None:
    try:
        text = value.decode("ascii").strip().lower()
    except UnicodeDecodeError:
        return None
    if text.startswith("["):
        name, bracket, rest = text[1:].partition("]")
        return _plain(name) if bracket and _is_port(rest) else None
    name, colon, rest = text.partition(":")
    return _plain(name) if _is_port(colon + rest) else None


def _is_port(text: str) -> bool:
    return text == "" or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit())


def _plain(name: str) -> str | None:
    name = name.strip().lower().removeprefix("[").removesuffix("]")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name or None
