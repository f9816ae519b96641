"""A server over streamable HTTP: who may ask, under which names, and within which limits."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl

from semlex.errors import ConfigurationError
from semlex.server.access.addresses import EVERY_ADDRESS, LOCAL, bound_socket, is_loopback
from semlex.server.access.rights import Caller
from semlex.server.limits.protocol import uvicorn_options
from semlex.server.mcp.assembly import mcp_server
from semlex.server.options import ServeOptions

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from starlette.applications import Starlette
    from starlette.requests import Request

    from semlex.retriever.client import Client
    from semlex.server.mcp.access import Access

PATH = "/mcp"
DEFAULT_PORT = 8322
MAX_BODY_BYTES = 1024 * 1024
MAX_SESSIONS = 100
IDLE_SECONDS = 600.0
STOP_SECONDS = 5


class CallerVerifier(TokenVerifier):
    """Verifies tokens by whoever knows them.

    Args:
        find: The caller of a token, or None; comparisons are in constant time there.
    """

    def __init__(self, find: Callable[[str], Caller | None]) -> None:
        self._find = find

    async def verify_token(self, token: str) -> AccessToken | None:
        """Whose token it is; None for nobody's."""
        caller = self._find(token)
        return None if caller is None else signed_in(caller).access_token


def signed_in(caller: Caller) -> AuthenticatedUser:
    """Somebody whose token is known, as the SDK ties sessions to them. It learns no token."""
    collections = None if caller.collections is None else sorted(caller.collections)
    claims = {"rights": caller.rights, "collections": collections}
    return AuthenticatedUser(
        AccessToken(token="", client_id=caller.name, scopes=[], subject=caller.name, claims=claims)
    )


def verified_caller(request: Request) -> Caller | None:
    """Who makes a request, as `CallerVerifier` has found."""
    claims: dict[str, Any] = request.user.access_token.claims
    seen = claims["collections"]
    return Caller(request.user.username, claims["rights"], None if seen is None else frozenset(seen))


def known_addresses(host: str, names: Sequence[str] = ()) -> TransportSecuritySettings:
    """Under which names the server may be asked, and by pages of which origins: its own, and no others.

    Args:
        host: Address that it listens on.
        names: Other names of it, with a port where that is not its own.
    """
    own = [*LOCAL]
    if host not in (*EVERY_ADDRESS, *own):
        own.append(host)
    shown = [f"[{name}]" if ":" in name else name for name in own] + [*names]
    hosts = [form for name in shown for form in (name, f"{name}:*")]
    origins = [f"{scheme}://{form}" for scheme in ("http", "https") for form in hosts]
    return TransportSecuritySettings(enable_dns_rebinding_protection=True, allowed_hosts=hosts, allowed_origins=origins)


def mcp_app(
    client: Client | Callable[[], AbstractContextManager[Client]],
    access: Access,
    *,
    host: str = "127.0.0.1",
    names: Sequence[str] = (),
    find_caller: Callable[[str], Caller | None] | None = None,
    caller_of: Callable[[Request], Caller | None] | None = None,
    default: Callable[[], str] | None = None,
) -> Starlette:
    """The server as an ASGI application that answers at ``/mcp``.

    Another application takes its routes, and enters its lifespan
    (``app.router.lifespan_context(app)``) in its own.

    Args:
        client: Open as long as the application runs; or what lends, for one request, the client that serves then.
        access: What an assistant may reach, at most.
        host: Address that it listens on.
        names: Other names under which it may be asked.
        find_caller: The caller of a token; requests without a known token are refused then.
        caller_of: Who makes a request, where another application has found that out; it knows hosts and origins, too.
        default: As for `mcp_server`.
    """
    with_tokens: dict[str, Any] = {}
    addresses = known_addresses(host, names)
    if caller_of is not None:
        addresses = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    if find_caller is not None:
        # There is no issuer: tokens are made on this machine. The address is what the settings demand.
        auth = AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None)
        caller_of = verified_caller
        with_tokens = {"token_verifier": CallerVerifier(find_caller), "auth": auth}
    server = mcp_server(client, access, caller_of=caller_of, default=default, **with_tokens)
    return server.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=addresses,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=MAX_SESSIONS,
        session_idle_timeout=IDLE_SECONDS,
    )


def listening_socket(host: str, port: int, *, has_tokens: bool) -> socket.socket:
    """A socket that listens on an address.

    Raises:
        ConfigurationError: The address cannot be listened on, or others reach it and there are no tokens.
    """
    if not has_tokens and not is_loopback(host):
        raise ConfigurationError(
            f"{host[:80]!a} can be reached from other machines, and there are no tokens: listen on 127.0.0.1, or give "
            "--token-file FILE"
        )
    made = bound_socket(host, port)
    made.listen()  # who reads the address may ask at once
    return made


class WebServer(uvicorn.Server):
    """Uvicorn, which leaves signals to the process that it is in."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes none: `should_exit` is what ends it."""
        yield


def web_server(app: Starlette) -> WebServer:
    """What answers over HTTP until ``should_exit`` is set; requests in progress have a moment to end then."""
    return WebServer(
        uvicorn.Config(
            app,
            **uvicorn_options(ServeOptions()),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
    )
