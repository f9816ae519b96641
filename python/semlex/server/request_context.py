"""The context of a request (its client, and its caller after a check of rights), routes, and responses."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from semlex.retriever.operations import OPERATIONS
from semlex.server.limits import Found, check_answer
from semlex.server.problems import MEDIA_TYPE, Problem
from semlex.types.documents import StoredChunk, json_value
from semlex.types.results import DocumentHits, SearchResults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from semlex.options.declare import Rights
    from semlex.retriever.client import Client
    from semlex.retriever.collection import Collection
    from semlex.server.answers import Shape
    from semlex.server.open_client import OpenClient
    from semlex.server.state import ServerState
    from semlex.server.tokens import Caller

# An answer is written in a thread if the chunks that it is made of have this many bytes.
LONG_BYTES = 256 * 1024
NO_METHOD = 405
OPERATION = "x-semlex-operation"
RIGHTS = "x-semlex-rights"

# Operation -> what its answer holds.
RETURNS: dict[str, Shape] = {}
PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
# Status -> its cause, and the remedy. In /openapi.json, every route has all but 405, which none returns.
REFUSALS = {
    400: (
        "The body is not JSON or lacks its content type.",
        "Send `Content-Type: application/json` and a JSON object.",
    ),
    401: ("The token is missing or unknown.", "Send `Authorization: Bearer TOKEN`; see `semlex serve token list`."),
    403: (
        "The rights, collections or folders of the caller do not suffice, or the origin of the page is unknown.",
        "Give the caller a token with these (`semlex serve token add`), or allow the origin (`semlex serve --origin`).",
    ),
    404: (
        "No such route, collection, document, chunk, job, page or model exists.",
        "`GET /openapi.json` has the routes, `GET /v1/collections` the collections; `detail` names the models.",
    ),
    405: ("The route does not support this method.", "The header `Allow` lists the methods."),
    408: ("The body did not arrive in time.", "Send fewer documents at once, or use a faster connection."),
    409: (
        "Two arguments exclude each other, or the state of the collection does not allow the operation.",
        "`detail` names them; `semlex status` shows the state.",
    ),
    413: (
        "The body, a text for the model or the answer is too long.",
        "Send fewer documents or shorter texts (`semlex serve --body-bytes`); ask for fewer hits, or some `fields`.",
    ),
    415: ("The body is compressed.", "Send it uncompressed."),
    421: ("The server is not known under this host name.", "Allow the name: `semlex serve --allow-host`."),
    422: ("The request does not fit the schema of its route.", "`errors` names each field; see `GET /openapi.json`."),
    429: (
        "Too many requests within a minute.",
        "Wait for the seconds in `Retry-After`, or raise `semlex serve --rate`.",
    ),
    431: ("Too many header lines.", "Send fewer cookies; a proxy may add lines."),
    500: ("The server failed.", "Find `request_id` in the log, and report the defect."),
    502: ("A model's server failed or refused.", "Read that server's log; `semlex doctor models` tests it."),
    503: (
        "Too much is in progress, or the database or a model is not available.",
        "Try again after `Retry-After`; `semlex doctor` finds the cause; raise `semlex serve --concurrency`.",
    ),
    504: ("The request took too long.", "Ask for fewer results, give a `deadline`, or raise `semlex serve --timeout`."),
}


@dataclass(frozen=True, slots=True)
class RequestContext:
    """A request whose caller has the rights that its operation needs."""

    state: ServerState
    open_client: OpenClient
    caller: Caller
    operation: str  # name in the table of operations, or ""
    found: Found  # bytes that were found so far

    @property
    def client(self) -> Client:
        """The open client."""
        return self.open_client.client

    def need(self, rights: Rights) -> None:
        """Refuse the request if the caller's rights do not suffice."""
        if not self.caller.may(rights):
            raise Problem(403, f"this needs the right {rights!r}; the caller has {self.caller.rights!r}")

    def check(self, collection: str) -> None:
        """Refuse a collection that the caller may not see, whether it exists or not."""
        if not self.caller.sees(collection):
            raise Problem(
                403, "the caller's token is not for this collection; GET /v1/collections lists those that it may use"
            )

    @property
    def default(self) -> str:
        """The collection of requests that name none."""
        name = self.open_client.default
        assert name is not None  # noqa: S101 - a server has settings
        return name

    def chosen(self, name: str | None) -> str:
        """Return the name of the request's collection, or the default, if the caller may see it."""
        chosen = self.default if name is None else name
        self.check(chosen)
        return chosen

    async def collection(self, name: str | None, *, create: bool = False) -> Collection:
        """Open the collection that a request names."""
        return await self.open_client.collection(self.chosen(name), create=create)

    async def searched(self, name: str | None) -> Collection:
        """Open the collection that a request searches, and count the search."""
        opened = await self.collection(name)
        self.state.metrics.searches[self.operation] += 1
        return opened


async def request_context(request: Request) -> RequestContext:
    """Check a request and make its context; every route depends on it."""
    found = request.scope["state"]
    extra = request.scope["route"].openapi_extra or {}
    context = RequestContext(
        request.app.state.server, found["open_client"], found["caller"], extra.get(OPERATION, ""), found["found"]
    )
    context.need(extra[RIGHTS])
    known = {field.alias for field in request.scope["route"].dependant.query_params}
    given = [name for name, _ in request.query_params.multi_items()]
    if set(given) - known or len(set(given)) < len(given):
        takes = f"the route takes {', '.join(sorted(known))}" if known else "the route takes none"
        raise Problem(422, f"a parameter in the address is unknown to this route, or given twice; {takes}")
    return context


Current = Annotated[RequestContext, Depends(request_context)]


def route(
    router: APIRouter,
    method: str,
    path: str,
    operation: str,
    *,
    returns: Shape = None,
    also: tuple[str, ...] = (),
    rights: Rights | None = None,
    status: int = 200,
    media: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the route of an operation; callers need the operation's right."""
    known = OPERATIONS.get(operation)
    needed = known.rights if rights is None and known is not None else rights
    assert needed is not None, operation  # noqa: S101 - a route of the table, or one that names its rights
    extra = {OPERATION: operation if known is not None else "", RIGHTS: needed}
    name = operation.replace(" ", "_")
    done: dict[str, Any] = {"description": "Done."}
    if returns is not None:
        RETURNS[name] = returns
        done["content"] = {"application/json": {"schema": {"type": "object"}}}
    if media:
        done["content"] = done.get("content", {}) | {kind: {"schema": schema} for kind, schema in media.items()}
    responses: dict[int | str, dict[str, Any]] = {status: done}
    responses |= {
        code: {"description": cause, "content": PROBLEM} for code, (cause, _) in REFUSALS.items() if code != NO_METHOD
    }

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for place in (path, *also):
            router.add_api_route(
                place,
                function,
                methods=[method],
                operation_id=name,
                summary=(function.__doc__ or "").partition("\n")[0],
                description="",
                responses=responses,
                response_class=Response,
                status_code=status,
                openapi_extra=extra,
                include_in_schema=place == path,
            )
        return function

    return decorate


def json_response(value: Any, status: int = 200) -> Response:
    """Respond with a short JSON value."""
    written = as_json(value)
    check_answer(len(written))
    return Response(written, status, media_type="application/json")


async def dict_response(context: RequestContext, report: Any) -> Response:
    """Respond with the `to_dict` of a report."""
    return await _written(context, lambda: as_json(report.to_dict()))


async def chunks_response(
    context: RequestContext, chunks: Sequence[StoredChunk], fields: Sequence[str] | None
) -> Response:
    """Respond with chunks, each with these fields only."""
    return await _written(context, rows_as_json, "chunks", chunks, {}, fields)


async def hits_response(context: RequestContext, found: SearchResults, fields: Sequence[str] | None) -> Response:
    """Respond with `SearchResults.to_dict`, written directly from the hits, eight times as fast as by `to_dict`."""
    return await _written(context, rows_as_json, "hits", found, vars(found), fields)


async def many_response(
    context: RequestContext, found: Sequence[SearchResults], fields: Sequence[str] | None
) -> Response:
    """Respond with the hits of several searches."""

    def write() -> bytes:
        parts, size = [], 0
        for results in found:
            parts.append(rows_as_json("hits", results, vars(results), fields))
            size += len(parts[-1])
            check_answer(size)
        return b'{"results":[' + b",".join(parts) + b"]}"

    return await _written(context, write)


async def _written(context: RequestContext, write: Callable[..., bytes], *given: Any) -> Response:
    """Write a response; a long one in a thread, so that other requests are not held up."""
    is_long = context.found.size >= LONG_BYTES
    written = await asyncio.to_thread(write, *given) if is_long else write(*given)
    check_answer(len(written))
    return Response(written, media_type="application/json")


def rows_as_json(name: str, rows: Sequence[Any], beside: dict[str, Any], fields: Sequence[str] | None) -> bytes:
    """Write rows and their summary as JSON, one by one, so that other threads can run in between."""
    parts, size = [], 0
    for row in rows:
        parts.append(as_json(_with_fields(row, fields)))
        size += len(parts[-1])
        check_answer(size)
    if fields is not None and beside.get("documents"):
        beside = beside | {"documents": [_with_fields(one, fields) for one in beside["documents"]]}
    rest = as_json(beside)[1:-1]
    return b"".join((b'{"', name.encode(), b'":[', b",".join(parts), b"]", b"," if rest else b"", rest, b"}"))


def _with_fields(row: Any, fields: Sequence[str] | None) -> Any:
    """Return a hit or chunk with these fields only; for a document, its hits with these fields."""
    if fields is None:
        return row
    if isinstance(row, DocumentHits):
        kept = {name: getattr(row, name) for name in row.__dataclass_fields__}
        return kept | {"hits": [_with_fields(hit, fields) for hit in row.hits]}
    return {name: getattr(row, name) for name in fields}


def as_json(value: Any) -> bytes:
    """Return a value as JSON, as all routes write it."""
    try:
        return orjson.dumps(value, default=json_value)
    except orjson.JSONEncodeError:
        # Whole numbers of more than 64 bits, which metadata may hold.
        return json.dumps(json_value(value), ensure_ascii=False, separators=(",", ":")).encode()
