"""Metrics of a server in the text format of Prometheus; log formats; traces."""

from __future__ import annotations

import copy
import json
import logging
import os
import platform
import time
import traceback
from bisect import bisect_left
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from semlex.errors import ConfigurationError
from semlex.telemetry import REQUEST_ID, ROUTE, STATUS, Work, is_on, span

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from fastapi.telemetry import TelemetryConfig
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from semlex.types.jobs import JobState


METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Of HTTP; others are texts of the caller's.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Upper bounds in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STARTED = time.time()
# Name -> kind, labels and meaning.
METRICS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "semlex_requests_total": ("counter", ("method", "route", "status"), "Requests by status; 499: the client left."),
    "semlex_request_seconds": ("histogram", ("route",), "Duration of requests, from head to end of the answer."),
    "semlex_refused_total": ("counter", ("why",), "Requests refused before routing, by problem, such as unauthorized."),
    "semlex_searches_total": ("counter", ("operation",), "Searches by operation, such as search or answer."),
    "semlex_reloads_total": ("counter", ("outcome",), "Changed settings (ok or refused) and refused token files."),
    "semlex_jobs": (
        "gauge",
        ("state",),
        "Jobs by state: queued, running, done, failed, cancelled; ended ones until a worker removes them.",
    ),
    "semlex_pool_idle": ("gauge", (), "Connections to the database that are not in use."),
    "semlex_pool_size": ("gauge", (), "Connections to the database."),
    "semlex_pool_waiting": ("gauge", (), "Callers that wait for a connection to the database."),
    "semlex_requests_in_flight": ("gauge", (), "Requests in progress."),
    "semlex_build_info": ("gauge", ("version", "python"), "Versions; the value is 1."),
    "process_cpu_seconds_total": ("counter", (), "CPU time of the process."),
    "process_open_fds": ("gauge", (), "Open descriptors of the process (Linux)."),
    "process_resident_memory_bytes": ("gauge", (), "Memory of the process (Linux)."),
    "process_start_time_seconds": ("gauge", (), "Start of the process, in seconds since 1970."),
}


@dataclass(slots=True)
class Metrics:
    """Counters since the start of the server, for one event loop."""

    # (method, route, status) -> answered requests; status 499: the client left before.
    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    searches: Counter[str] = field(default_factory=Counter)
    reloads: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    _buckets: dict[str, list[int]] = field(default_factory=dict)
    _seconds: Counter[str] = field(default_factory=Counter)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests[method if method in METHODS else "other", route, status] += 1
        buckets = self._buckets.setdefault(route, [0] * (len(BUCKETS) + 1))
        buckets[bisect_left(BUCKETS, seconds)] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]  # a counter adds floats as well

    def text(self, gauges: Mapping[str, float], jobs: Mapping[JobState, int] | None = None) -> str:
        """Return all metrics in the text format of Prometheus."""
        lines = _head("semlex_requests_total")
        for (method, route, status), count in sorted(self.requests.items()):
            lines.append(f'semlex_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}')
        lines += _head("semlex_request_seconds")
        for route, buckets in sorted(self._buckets.items()):
            below = 0
            for bound, count in zip((*BUCKETS, "+Inf"), buckets, strict=True):
                below += count
                lines.append(f'semlex_request_seconds_bucket{{route="{route}",le="{bound}"}} {below}')
            lines.append(f'semlex_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}')
            lines.append(f'semlex_request_seconds_count{{route="{route}"}} {below}')
        counted: dict[str, Mapping[Any, int]] = {
            "semlex_refused_total": self.refused,
            "semlex_searches_total": self.searches,
            "semlex_reloads_total": self.reloads,
        }
        for name, counts in (counted if jobs is None else counted | {"semlex_jobs": jobs}).items():
            [label] = METRICS[name][1]
            lines += [*_head(name), *(f'{name}{{{label}="{key}"}} {count}' for key, count in sorted(counts.items()))]
        for name, value in sorted({"requests_in_flight": self.in_flight, **gauges}.items()):
            lines += [*_head(f"semlex_{name}"), f"semlex_{name} {value:g}"]
        return "\n".join([*lines, *_of_the_process()]) + "\n"


def _head(name: str) -> list[str]:
    kind, _, meaning = METRICS[name]
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]


def _of_the_process() -> list[str]:
    """Return metrics of the build and of this process, named as Prometheus' own clients do."""
    from semlex import __version__  # noqa: PLC0415 - the package as a whole

    python = platform.python_version()
    lines = _head("semlex_build_info")
    lines.append(f'semlex_build_info{{version="{__version__}",python="{python}"}} 1')
    figures = {"cpu_seconds_total": time.process_time(), "start_time_seconds": STARTED}
    with suppress(OSError):  # of Linux alone
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        figures["resident_memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
        figures["open_fds"] = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for name, value in sorted(figures.items()):
        lines += [*_head(f"process_{name}"), f"process_{name} {value:.15g}"]
    return lines


# What FastAPI records holds paths, query strings, and messages of errors. Its metrics hold routes.
OWN_TELEMETRY: TelemetryConfig = {"tracing": False, "operation_spans": False, "logs": False}
PROPAGATED = (b"traceparent", b"tracestate")
SERVER_ERRORS = 500


class Traces:
    """Records a span for each request, if the program has set up OpenTelemetry."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as an ASGI application."""
        if scope["type"] != "http" or not is_on():
            await self._app(scope, receive, send)
            return
        status: int | None = None

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        method = scope["method"] if scope["method"] in METHODS else "HTTP"
        with span(Work.REQUEST, method, parent=_parent(scope)) as recorded:
            try:
                await self._app(scope, receive, sending)
            finally:
                route = getattr(scope.get("route"), "path", None)
                if route is not None:
                    recorded.rename(f"{method} {route}")
                recorded.note({ROUTE: route, STATUS: status, REQUEST_ID: scope.get("state", {}).get("request_id")})
                if status is not None and status >= SERVER_ERRORS:
                    recorded.fail(str(status))


def _parent(scope: Scope) -> Any:
    from opentelemetry import propagate  # noqa: PLC0415 - a program that wants spans has it

    given = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in PROPAGATED}
    return propagate.extract(given)


LogFormat = Literal["text", "json"]
# Fields of a request's line beside its message, by their names in JSON.
FIELDS = ("request_id", "method", "route", "status", "milliseconds", "caller", "address")
LEVELS = (("semlex", logging.INFO), ("uvicorn.error", logging.ERROR), ("mcp", logging.ERROR))


class TextLines(logging.Formatter):
    """Log lines of time, level and message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line of a record."""
        own = copy.copy(record)
        own.exc_text = None  # what another handler has made of the error, with its message
        return super().format(own)

    def formatException(  # noqa: N802 - the base class's
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Return the types of an error and its causes and the places they came from, without messages."""
        return "\n".join(places(ei[1]))


class JsonLines(logging.Formatter):
    """Log lines that are JSON objects."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """Return the log line of a record."""
        line: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: vars(record)[name] for name in FIELDS if name in vars(record)}
        if record.exc_info is not None:
            line["error"] = places(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False, default=str)


def places(error: BaseException | None) -> list[str]:
    """Return the type of an error and of its causes, each with the code lines that it passed."""
    found: list[str] = []
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        found += [type(error).__name__, *(f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def log_to_stderr(form: str, *, quiet: bool = False) -> None:
    """Write the server's log to standard error."""
    if form not in get_args(LogFormat):
        raise ConfigurationError(f"log format must be {' or '.join(get_args(LogFormat))}; got {form[:80]!a}")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name, level in LEVELS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(max(level, logging.WARNING) if quiet else level)
