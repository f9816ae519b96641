"""What came of a request; and what is read of a refusal: known names of errors, how long to wait, what helps."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
# Names of errors that the servers document. Nothing else of an answer is quoted: it may hold a text or a key.
QUOTED_NAMES = frozenset(
    {
        *("authentication_error", "billing_hard_limit_reached", "context_length_exceeded", "insufficient_quota"),
        *("invalid_api_key", "invalid_request_error", "invalid_type", "invalid_value", "model_not_found"),
        *("not_found_error", "permission_error", "rate_limit_exceeded", "server_error", "unsupported_parameter"),
        *("BadRequestError", "InternalServerError", "NotFoundError", "UnprocessableEntityError"),
        *("Backend", "Empty", "Overloaded", "Tokenizer", "Unhealthy", "Validation"),
        *("DEADLINE_EXCEEDED", "FAILED_PRECONDITION", "INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND"),
        *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNAVAILABLE"),
    }
)
REMEDIES = {
    400: "check the key, the model's name, its settings, and the length of the texts",
    404: "check the address and the model's name; a local server must have fetched the model first",
    413: "lower batch_size, or shorten the texts",
    422: "check the model's name, its settings, and the length of the texts",
    429: "it limits requests, or the account has no credit left; wait, or send less at once",
}
UNREACHABLE = "check the address, and that the server is running and can be reached from here"


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of whatever status.

    Attributes:
        status: HTTP status.
        retry_after: The header ``Retry-After``, or None.
        body: All of it.
    """

    status: int
    retry_after: str | None
    body: bytes

    @property
    def succeeded(self) -> bool:
        """Whether it is what was asked for."""
        return self.status < 300  # noqa: PLR2004 (the statuses of success)

    @property
    def retried(self) -> bool:
        """Whether another attempt may succeed."""
        return self.status in RETRIED_STATUSES


@dataclass(frozen=True, slots=True)
class Failure:
    """What stood in the way of an answer.

    Attributes:
        what: A predicate: the server ``cannot be reached``.
        remedy: What helps.
        retried: Whether another attempt may succeed.
        is_slow: Whether the server took the request, and the time was over.
    """

    what: str
    remedy: str
    retried: bool = True
    is_slow: bool = False
    succeeded = False


TOO_SLOW = Failure(
    "did not answer in time", "look at the server's load; or lower batch_size, raise timeout", is_slow=True
)


def failure_of(error: Exception) -> Failure:
    """What an error of the HTTP library means; its text, which may hold what was sent, is not quoted."""
    import httpx2  # noqa: PLC0415 (loaded already)

    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Failure("cannot be reached", UNREACHABLE)
    if isinstance(error, httpx2.TimeoutException):
        return TOO_SLOW
    if isinstance(error, httpx2.NetworkError | httpx2.RemoteProtocolError | httpx2.ProxyError):
        return Failure(f"broke the connection ({type(error).__name__})", UNREACHABLE)
    return Failure(f"could not be asked ({type(error).__name__})", UNREACHABLE, retried=False)


def asked_wait(value: str | None) -> float | None:
    """Seconds that a Retry-After header asks for, as a number or as a date (RFC 9110, 10.2.3), if it says anything."""
    if value is None:
        return None
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value, re.ASCII):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def quoted(body: bytes) -> str:
    """Names of the error that an answer holds, in brackets: only those that `QUOTED_NAMES` knows."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    outer = content if isinstance(content, dict) else {}
    inner = outer.get("error")
    found = [
        value
        for source in (inner if isinstance(inner, dict) else {}, outer)
        for value in (source.get(field) for field in ("code", "type", "status", "error_type"))
        if isinstance(value, str) and value in QUOTED_NAMES
    ]
    return f" ({', '.join(dict.fromkeys(found))})" if found else ""
