"""How the server is reached, by whom, and within which limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from semlex.errors import ConfigurationError
from semlex.jobs.allowed import AllowedFolders
from semlex.jobs.worker import MAX_CONCURRENCY
from semlex.operations import Rights
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """How the server is reached, by whom, and within which limits.

    Attributes:
        host: Address that it listens on; off loopback only with tokens.
        port: Port; 0 for one that is free.
        rights: Of all callers, where there are no tokens: ``read``, ``write`` or ``admin``.
        token_file: File of the tokens; None for none.
        allow: Folders that jobs may read, with all below them.
        hosts: Names under which the server is asked, beside its address and, on loopback, ``localhost``.
        origins: Origins whose pages may ask, such as ``https://search.example.org``.
        body_bytes: Most bytes of a request's body.
        documents_bytes: Most bytes of the body of what adds documents or submits jobs.
        header_count: Most header lines.
        head_seconds: Time for the head of a request to arrive.
        body_seconds: Time for its body.
        send_seconds: Time in which a client takes some of its answer, or its end.
        seconds: Time for a request; what takes longer is cancelled.
        answer_seconds: Time for an answer that a language model writes.
        rate: Most requests of a caller in a minute; 0 for any number; None: 60 with tokens, any number without.
        concurrency: Most requests in progress; others wait for a second, then they are refused.
        connections: Most open connections.
        database_connections: Most connections to the database.
        stop_seconds: Time that requests in progress have when the server stops.
        role: Role of the database whose rights everything has; None: those of the login.
        jobs: Jobs that this process does at a time; 0 leaves them to ``semlex worker``.
        stateless: Whether assistants are answered without sessions, so that any of several processes can answer.
        judgements: Folder for what people judge on the page; None where it is not stored.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    rights: Rights = "read"
    token_file: Path | None = None
    allow: Sequence[str | Path] = ()
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    body_bytes: int = MIB
    documents_bytes: int = MIB
    header_count: int = 64
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    send_seconds: float = 30.0
    seconds: float = 30.0
    answer_seconds: float = 300.0
    rate: int | None = None
    concurrency: int = 16
    connections: int = 1024
    database_connections: int = 8
    stop_seconds: float = 30.0
    role: str | None = None
    jobs: int = 0
    stateless: bool = False
    judgements: Path | None = None

    def __post_init__(self) -> None:
        check_parameters(
            kind_errors("host", self.host, str),
            kind_errors("stateless", self.stateless, bool),
            strings_errors("hosts", list(self.hosts)),
            strings_errors("origins", list(self.origins)),
            *(
                number_errors(name, getattr(self, name), 0.01, MAX_SECONDS)
                for name in (
                    "head_seconds",
                    "body_seconds",
                    "send_seconds",
                    "seconds",
                    "answer_seconds",
                    "stop_seconds",
                )
            ),
        )
        bounds = {
            "port": (0, 65_535),
            "body_bytes": (1, MAX_BODY_BYTES),
            "documents_bytes": (1, MAX_BODY_BYTES),
            "header_count": (1, 10_000),
            "concurrency": (1, 10_000),
            "connections": (1, 100_000),
            "database_connections": (1, 10_000),
            "jobs": (0, MAX_CONCURRENCY),
        }
        for name, (least, most) in bounds.items():
            check_range(name, getattr(self, name), least, most)
        if self.role is not None and self.jobs:
            raise ConfigurationError(
                "jobs are done with the rights of the login, which role is to narrow: leave --jobs out, and run "
                "'semlex worker' beside the server"
            )
        # A folder that is not there would be told by the first job, hours later.
        AllowedFolders(self.allow)
        if self.rate is not None:
            check_range("rate", self.rate, 0, 1_000_000)
        if self.rights not in get_args(Rights):
            raise ConfigurationError(f"rights must be one of {', '.join(get_args(Rights))}; got {self.rights!r:.80}")
        origins = []
        for origin in self.origins:
            if (written := origin_of(origin)) is None:
                raise ConfigurationError(
                    f"origins: {origin[:80]!a} is no origin; write scheme, host and port, as https://search.example.org"
                )
            origins.append(written)
        object.__setattr__(self, "origins", tuple(origins))
        if self.token_file is None and not is_loopback(self.host):
            raise ConfigurationError(
                f"host {self.host[:80]!a} can be reached from elsewhere, and there are no tokens: make one with "
                "'semlex serve token add NAME --token-file FILE' and give --token-file FILE, or listen on 127.0.0.1"
            )

    @property
    def requests_a_minute(self) -> int:
        """Most requests of a caller in a minute; 0 for any number."""
        return (60 if self.token_file is not None else 0) if self.rate is None else self.rate

    def bytes_of(self, path: str) -> int:
        """Most bytes of a request's body on a path."""
        return self.documents_bytes if path in DOCUMENTS_PATHS else self.body_bytes

    @property
    def bytes_in_progress(self) -> int:
        """Most bytes of all bodies that are read or worked on at a time."""
        return max(BYTES_IN_PROGRESS, 2 * max(self.body_bytes, self.documents_bytes))

    @property
    def bytes_of_a_caller(self) -> int:
        """Most bytes of the bodies of one caller that are read or worked on at a time."""
        return max(BYTES_IN_PROGRESS // CALLERS_SHARE, self.body_bytes, self.documents_bytes)


def client_options(given: dict[str, Any], options: ServeOptions) -> dict[str, Any]:
    """What the client is made with."""
    kept = {name: value for name, value in given.items() if name not in ("collection", "calibration")}
    return kept | {"max_connections": options.database_connections, "role": options.role}
