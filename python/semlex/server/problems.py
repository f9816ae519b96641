"""Turn errors into HTTP answers: bodies in the form of RFC 9457, and the status of each error."""

from __future__ import annotations

import json
import logging
from email.message import Message
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from semlex.errors import (
    CalibrationFileError,
    CollectionNotFoundError,
    ConfigurationError,
    DumpError,
    DuplicateError,
    EmbeddingsMissingError,
    MissingExtraError,
    MissingKeyError,
    ModelError,
    ModelMismatchError,
    ModelServerError,
    PrivilegeError,
    ReadOnlyError,
    SearchTimeoutError,
    SemlexError,
    StoreError,
    ValidationError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException
    from starlette.requests import Request

logger = logging.getLogger("semlex.server")

MEDIA_TYPE = "application/problem+json"
SHOWN_ERRORS = 100
SHOWN_CHARACTERS = 200

NO_JSON = "the body is not JSON; send a JSON object with the header Content-Type: application/json"
# Messages of the framework name no remedy.
_DETAILS = {
    HTTPStatus.BAD_REQUEST: "the body cannot be read as JSON: it is not UTF-8, is nested too deeply, or a number is "
    "too long; send an object without these, with the header Content-Type: application/json",
    HTTPStatus.NOT_FOUND: "unknown route; GET /openapi.json describes all routes",
    HTTPStatus.METHOD_NOT_ALLOWED: "this route does not support the method; the header Allow lists the supported ones",
}

# The first class that an error belongs to decides. A detail of None is the error's own message; messages about the
# database and its server, and lists of collections, are not for every caller.
_STATUSES: tuple[tuple[type[SemlexError] | tuple[type[SemlexError], ...], HTTPStatus, str | None], ...] = (
    (CollectionNotFoundError, HTTPStatus.NOT_FOUND, "the collection does not exist; GET /v1/collections lists yours"),
    (SearchTimeoutError, HTTPStatus.SERVICE_UNAVAILABLE, "no search answered before the deadline; give a later one"),
    (ModelMismatchError, HTTPStatus.CONFLICT, None),
    (ModelServerError, HTTPStatus.BAD_GATEWAY, "a model server failed or refused; see the log of this server"),
    # What the operator has to do is not for callers.
    (
        (ModelError, MissingKeyError),
        HTTPStatus.SERVICE_UNAVAILABLE,
        "a model cannot be used here; see the server's log",
    ),
    (MissingExtraError, HTTPStatus.SERVICE_UNAVAILABLE, None),
    (CalibrationFileError, HTTPStatus.SERVICE_UNAVAILABLE, "the calibration cannot be used; see the server's log"),
    (ValidationError, HTTPStatus.UNPROCESSABLE_ENTITY, None),
    # The schema cannot express these: arguments that exclude each other, or something that does not exist.
    ((ConfigurationError, EmbeddingsMissingError, DuplicateError, DumpError), HTTPStatus.CONFLICT, None),
    (PrivilegeError, HTTPStatus.SERVICE_UNAVAILABLE, "the server's database role lacks a right; see the server's log"),
    (ReadOnlyError, HTTPStatus.SERVICE_UNAVAILABLE, "the database is read-only; see the server's log"),
    (StoreError, HTTPStatus.SERVICE_UNAVAILABLE, "the database does not answer; see the server's log"),
)


# A body never contains a document's text, a vector or a secret. For internal errors it has only the kind; the log has
# the details under the same request id.
class Problem(Exception):  # noqa: N818 - the name of what it becomes
    """An error that is sent as the answer."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail = HTTPStatus(status), detail
        self.kind = kind or self.status.phrase.lower().replace(" ", "-")
        self.errors, self.headers = errors, headers

    def response(self, request_id: str) -> Response:
        """Return the HTTP response."""
        body: dict[str, Any] = {
            "type": f"urn:semlex:problem:{self.kind}",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
            "request_id": request_id,
        }
        if self.errors:
            body["errors"] = self.errors[:SHOWN_ERRORS]
        content = json.dumps(body).encode()
        return Response(content, self.status.value, self.headers, MEDIA_TYPE)


def try_later(detail: str, *, kind: str = "overload", seconds: int = 1) -> Problem:
    """Return the refusal of a request that may succeed after some seconds."""
    return Problem(503, detail, kind=kind, headers={"Retry-After": str(seconds)})


def problem_of(error: SemlexError) -> Problem:
    """Return the `Problem` for an error of semlex."""
    status, detail = next(
        ((status, detail) for kind, status, detail in _STATUSES if isinstance(error, kind)),
        (HTTPStatus.INTERNAL_SERVER_ERROR, "the server failed; see its log"),
    )
    kind = "".join(f"-{c.lower()}" if c.isupper() else c for c in type(error).__name__.removesuffix("Error")).strip("-")
    errors: list[dict[str, Any]] = []
    if isinstance(error, ValidationError):
        errors = [
            {"field": one.field, "row": None if one.row < 0 else one.row, "rule": one.code, "detail": str(one)}
            for one in error.errors[:SHOWN_ERRORS]
        ]
    headers = {"Retry-After": "1"} if status is HTTPStatus.SERVICE_UNAVAILABLE else None
    return Problem(status, str(error) if detail is None else detail, kind=kind, errors=errors, headers=headers)


def request_id_of(scope: Mapping[str, Any]) -> str:
    """Return the id that the log has for a request."""
    return str(scope.get("state", {}).get("request_id", ""))


async def answer_problem(request: Request, error: Exception) -> Response:
    """Send a `Problem` as the response."""
    assert isinstance(error, Problem)  # noqa: S101 - registered for it
    return error.response(request_id_of(request.scope))


async def answer_error(request: Request, error: Exception) -> Response:
    """Send an error of semlex as a response, and log it if the server is at fault."""
    assert isinstance(error, SemlexError)  # noqa: S101 - registered for it
    problem = problem_of(error)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        request_id = request_id_of(request.scope)
        logger.warning("request %s: %s: %s", request_id, type(error).__name__, error, extra={"request_id": request_id})
    return problem.response(request_id_of(request.scope))


async def answer_refusal(request: Request, error: RequestValidationError) -> Response:
    """Answer a request that does not fit the schema: with the places and the rules, never the values."""
    found = error.errors()
    if any(one["type"] == "json_invalid" or _is_unread(request, one) for one in found):
        return Problem(400, NO_JSON).response(request_id_of(request.scope))
    errors = [
        {"field": _place(one["loc"]), "rule": str(one["type"]), "detail": str(one["msg"])[:SHOWN_CHARACTERS]}
        for one in found[:SHOWN_ERRORS]
    ]
    problem = Problem(422, "the request does not fit the schema of this route (/openapi.json)", errors=errors)
    return problem.response(request_id_of(request.scope))


async def answer_http(request: Request, error: HTTPException) -> Response:
    """Answer an error of the framework: unknown route, or another method."""
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names the methods of the first route of this path alone.
        known = request.app.openapi()["paths"].get(getattr(request.scope.get("route"), "path_format", None), {})
        headers |= {"Allow": ", ".join(sorted(method.upper() for method in known))} if known else {}
    detail = _DETAILS.get(HTTPStatus(error.status_code), str(error.detail)[:SHOWN_CHARACTERS])
    problem = Problem(error.status_code, detail, headers=headers)
    return problem.response(request_id_of(request.scope))


def _is_unread(request: Request, error: Mapping[str, Any]) -> bool:
    if tuple(error["loc"]) != ("body",) or error["type"] == "missing":
        return False
    message = Message()
    message["content-type"] = request.headers.get("content-type", "")
    subtype = message.get_content_subtype()
    return message.get_content_maintype() != "application" or not (subtype == "json" or subtype.endswith("+json"))


def _place(parts: Sequence[Any]) -> str:
    return ".".join(str(part) for part in parts)[:SHOWN_CHARACTERS]
