"""The query log: what is kept of questions, and what it tells."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from semlex.errors import ConfigurationError
from semlex.validation import check_parameters, check_range, kind_errors

if TYPE_CHECKING:
    from datetime import datetime

QueryLogMode = Literal["off", "hash", "text"]
MAX_LOGGED, MAX_DAYS = 1_000_000, 36_500


def query_log_mode(value: object) -> QueryLogMode:
    """What a setting says is kept.

    Raises:
        ValueError: What it must be.
    """
    for mode in get_args(QueryLogMode):
        if value == mode:
            found: QueryLogMode = mode
            return found
    raise ValueError(f"must be off, hash or text; got {value!r:.40}")


def keeps_questions(mode: QueryLogMode) -> bool:
    """Whether anything is kept."""
    return mode != "off"


@dataclass(frozen=True, slots=True)
class QueryLogOptions:
    """What is kept of the questions of a collection.

    Attributes:
        keep: ``off``: nothing; ``hash``: when, which (as a hash), how and with how many hits; ``text``: the question,
            too.
        max_rows: Most questions of a collection, 1 to 1,000,000; older ones are deleted.
        max_days: Days after which a question is deleted, 1 to 36,500.

    Raises:
        ConfigurationError: One is out of bounds.
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

    @classmethod
    def of(cls, given: QueryLogMode | QueryLogOptions) -> QueryLogOptions:
        """The options of an argument ``query_log``.

        Raises:
            ConfigurationError: It is neither.
        """
        check_parameters(kind_errors("query_log", given, str, QueryLogOptions))
        return given if isinstance(given, QueryLogOptions) else cls(given)


@dataclass(frozen=True, slots=True)
class LoggedQuery:
    """A question that was asked, once or often. Case and spaces do not make two of one.

    Attributes:
        query: The question as it was asked last, or None where texts are not kept.
        query_hash: Its hash, in hexadecimal digits.
        asked: How often it was asked.
        without_hits: How often nothing was found.
        last_asked_at: When it was asked last, in UTC.
    """

    query: str | None
    query_hash: str
    asked: int
    without_hits: int
    last_asked_at: datetime


@dataclass(frozen=True, slots=True)
class QueryLogSummary:
    """What the log of a collection holds.

    Attributes:
        logged: Questions.
        without_hits: Those of them that found nothing.
        oldest: When the oldest was asked, in UTC, or None.
        newest: When the newest was asked, in UTC, or None.
        most_asked: The most frequent first; of equally frequent ones the newest.
        nothing_found: Of those that found nothing at least once, likewise.
    """

    logged: int
    without_hits: int
    oldest: datetime | None
    newest: datetime | None
    most_asked: tuple[LoggedQuery, ...]
    nothing_found: tuple[LoggedQuery, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as a dict."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class QueryLogFigures:
    """What has become of the questions that this process was asked.

    Attributes:
        keep: ``hash`` or ``text``.
        logged: Questions that were written.
        waiting: Questions that are not written yet.
        dropped: Questions that came when too many were waiting.
        lost: Questions that could not be written.
        problem: Why nothing is written, or why the last writing failed; None when all went well.
    """

    keep: QueryLogMode
    logged: int = 0
    waiting: int = 0
    dropped: int = 0
    lost: int = 0
    problem: str | None = None
