"""The query log: options of what is stored about each question, and a summary of what is stored."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from semlex.errors import ConfigurationError
from semlex.validation import check_parameters, check_range, kind_errors

if TYPE_CHECKING:
    from datetime import datetime

QueryLogMode = Literal["off", "hash", "text"]
MAX_LOGGED, MAX_DAYS = 1_000_000, 36_500


def query_log_mode(value: object) -> QueryLogMode:
    """Read the setting that decides what the query log keeps."""
    if value not in get_args(QueryLogMode):
        raise ValueError(f"must be off, hash or text; got {value!r:.40}")
    return cast("QueryLogMode", value)


def keeps_questions(mode: QueryLogMode) -> bool:
    """Return whether the query log stores anything."""
    return mode != "off"


@dataclass(frozen=True, slots=True)
class QueryLogOptions:
    """What the query log stores about each question to a collection.

    Attributes:
        keep: ``off``: nothing; ``hash``: time, hash of the question, mode, whether it was filtered, number of hits;
            ``text``: the question, too.
        max_rows: Maximum number of questions, 1 to 1,000,000; older ones are deleted.
        max_days: Days after which a question is deleted, 1 to 36,500.

    Raises:
        ConfigurationError: A value is unknown or out of range.
    """

    keep: QueryLogMode = "hash"
    max_rows: int = 10_000
    max_days: int = 90

    def __post_init__(self) -> None:
        check_parameters(kind_errors("keep (query_log)", self.keep, str))
        if self.keep not in get_args(QueryLogMode):
            known = ", ".join(get_args(QueryLogMode))
            raise ConfigurationError(f"keep (query_log) must be one of {known}; got {self.keep[:20]!a}")
        check_range("max_rows", self.max_rows, 1, MAX_LOGGED)
        check_range("max_days", self.max_days, 1, MAX_DAYS)


def query_log_options(given: QueryLogMode | QueryLogOptions) -> QueryLogOptions:
    """Return the options of a mode, or options as they are; raise `ConfigurationError` for anything else."""
    check_parameters(kind_errors("query_log", given, str, QueryLogOptions))
    return given if isinstance(given, QueryLogOptions) else QueryLogOptions(given)


@dataclass(frozen=True, slots=True)
class LoggedQuery:
    """A question, how often it was asked, and how often it found nothing. Case and spaces make no difference.

    Attributes:
        query: The question as it was asked last, or None if texts are not kept.
        query_hash: Its hash, in hexadecimal digits.
    """

    query: str | None
    query_hash: str
    asked: int
    without_hits: int
    last_asked_at: datetime


@dataclass(frozen=True, slots=True)
class QueryLogSummary:
    """What the query log of a collection contains.

    Attributes:
        oldest, newest: When the oldest and the newest question were asked, in UTC, or None.
        most_asked: The most frequent first; ties by time, the newest first.
        nothing_found: Questions that found nothing at least once, those with the most such searches first; ties as
            above.
    """

    logged: int
    without_hits: int
    oldest: datetime | None
    newest: datetime | None
    most_asked: tuple[LoggedQuery, ...]
    nothing_found: tuple[LoggedQuery, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a dict."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class QueryLogFigures:
    """Numbers of this process's questions: written, waiting, dropped (too many were waiting) and lost (writing failed).

    Attributes:
        problem: Why nothing is written, or why the last attempt to write failed; None if all is well.
    """

    keep: QueryLogMode
    logged: int = 0
    waiting: int = 0
    dropped: int = 0
    lost: int = 0
    problem: str | None = None
