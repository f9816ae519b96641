"""The options of an HTTP server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from semlex.errors import ConfigurationError
from semlex.jobs.kinds import AllowedFolders
from semlex.jobs.worker import MAX_CONCURRENCY
from semlex.options.declare import Rights
from semlex.server.addresses import is_loopback, origin_of
from semlex.validation import check_parameters, check_range, kind_errors, number_errors, strings_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MIB = 1024 * 1024
DEFAULT_PORT = 8321
MAX_SECONDS = 86_400.0
MAX_BODY_BYTES = 1024 * MIB
BYTES_IN_PROGRESS = 256 * MIB
# One caller's share of them is a quarter.
CALLERS_SHARE = 4
# Routes whose bodies hold documents.
DOCUMENTS_PATHS = frozenset({"/v1/documents", "/v1/jobs"})


SECONDS = ("head_seconds", "body_seconds", "send_seconds", "seconds", "answer_seconds", "stop_seconds")
BOUNDS = {
    "port": (0, 65_535),
    "body_bytes": (1, MAX_BODY_BYTES),
    "documents_bytes": (1, MAX_BODY_BYTES),
    "header_count": (1, 10_000),
    "rate": (0, 1_000_000),
    "concurrency": (1, 10_000),
    "connections": (1, 100_000),
    "database_connections": (1, 10_000),
    "jobs": (0, MAX_CONCURRENCY),
    "processes": (1, 256),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Address, callers and limits of an HTTP server."""

    host: str = "127.0.0.1"  # off loopback only with tokens
    port: int = DEFAULT_PORT  # 0: a free one
    rights: Rights = "read"  # of all callers, without tokens
    token_file: Path | None = None
    allow: Sequence[str | Path] = ()  # folders that jobs may read, with all below them
    hosts: Sequence[str] = ()  # names of the server beside its address and, on loopback, ``localhost``
    origins: Sequence[str] = ()  # of pages that may use it, such as ``https://search.example.org``
    body_bytes: int = MIB
    documents_bytes: int = MIB  # of bodies that add documents or submit jobs
    header_count: int = 64
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    send_seconds: float = 30.0  # in which a client takes some of its answer, or its end
    seconds: float = 30.0  # for a request; it is cancelled then
    answer_seconds: float = 300.0  # for an answer of a language model
    rate: int | None = None  # requests of a caller in a minute; 0: any number; None: 60 with tokens, else any number
    concurrency: int = 16  # requests in progress; others wait for a second
    connections: int = 1024
    database_connections: int = 8
    stop_seconds: float = 30.0  # for requests in progress when the server stops
    role: str | None = None  # role of the database that narrows all rights
    jobs: int = 0  # at a time; 0 leaves them to ``semlex worker``
    processes: int = 1  # that share the address
    stateless: bool = False  # assistants without sessions, so that any of several processes can answer
    judgements: Path | None = None  # folder for what people judge on the page

    def __post_init__(self) -> None:
        check_parameters(
            kind_errors("host", self.host, str),
            kind_errors("stateless", self.stateless, bool),
            strings_errors("hosts", list(self.hosts)),
            strings_errors("origins", list(self.origins)),
            *(number_errors(name, getattr(self, name), 0.01, MAX_SECONDS) for name in SECONDS),
        )
        for name, (least, most) in BOUNDS.items():
            if name != "rate" or self.rate is not None:
                check_range(name, getattr(self, name), least, most)
        if self.role is not None and self.jobs:
            raise ConfigurationError(
                "jobs run with the rights of the database login, not of the role: leave --jobs out, and run "
                "'semlex worker' beside the server"
            )
        # Otherwise the first job would report a missing folder, hours later.
        AllowedFolders(self.allow)
        if self.rights not in get_args(Rights):
            raise ConfigurationError(f"rights must be one of {', '.join(get_args(Rights))}; got {self.rights!r:.80}")
        origins = []
        for origin in self.origins:
            if (written := origin_of(origin)) is None:
                raise ConfigurationError(
                    f"origins: {origin[:80]!a} is not an origin; write scheme, host and port, as https://search.example.org"
                )
            origins.append(written)
        object.__setattr__(self, "origins", tuple(origins))
        if self.processes > 1:  # any of which gets the next request
            object.__setattr__(self, "stateless", True)
        if self.token_file is None and not is_loopback(self.host):
            raise ConfigurationError(
                f"host {self.host[:80]!a} can be reached from other machines, and no token file is given: make a "
                "token with 'semlex serve token add NAME --token-file FILE' and give --token-file FILE, or listen on "
                "127.0.0.1"
            )

    @property
    def requests_a_minute(self) -> int:
        """Maximum number of requests of a caller per minute; 0: no limit."""
        return (60 if self.token_file is not None else 0) if self.rate is None else self.rate

    def bytes_of(self, path: str) -> int:
        """Return the maximum size in bytes of a request's body on a path."""
        return self.documents_bytes if path in DOCUMENTS_PATHS else self.body_bytes

    @property
    def bytes_in_progress(self) -> int:
        """Maximum bytes of all request bodies in progress at a time."""
        return max(BYTES_IN_PROGRESS, 2 * max(self.body_bytes, self.documents_bytes))

    @property
    def bytes_of_a_caller(self) -> int:
        """Maximum bytes of one caller's request bodies in progress at a time."""
        return max(BYTES_IN_PROGRESS // CALLERS_SHARE, self.body_bytes, self.documents_bytes)
