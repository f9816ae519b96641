"""Lines of the server's log, for people or for programs.

No line holds a question, a document or a token. Of an error that nobody expected a line says kind and place, not the
message: that may quote anything.
"""

from __future__ import annotations

import copy
import json
import logging
import time
import traceback
from typing import TYPE_CHECKING, Any, Literal, get_args

from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from types import TracebackType

LogFormat = Literal["text", "json"]
# What the line of a request says beside its message; the names are those of its JSON.
FIELDS = ("request_id", "method", "route", "status", "milliseconds", "caller", "address")
LEVELS = (("semlex", logging.INFO), ("uvicorn.error", logging.ERROR), ("mcp", logging.ERROR))


class TextLines(logging.Formatter):
    """Time, level, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        own = copy.copy(record)
        own.exc_text = None  # what another handler has made of the error, with its message
        return super().format(own)

    def formatException(  # noqa: N802 - the base class's
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """The kinds of errors and the places, innermost last."""
        return "\n".join(places(ei[1]))


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
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
    """The kind of an error and of those that led to it, each with the places that it came through."""
    found: list[str] = []
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        found += [type(error).__name__, *(f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames)]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return found


def log_to_stderr(form: str, *, quiet: bool = False) -> None:
    """Writes what the server logs to the error stream."""
    if form not in get_args(LogFormat):
        raise ConfigurationError(f"log format must be {' or '.join(get_args(LogFormat))}; got {form[:80]!a}")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name, level in LEVELS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(max(level, logging.WARNING) if quiet else level)
