"""Routes of documents and chunks: list, read, add, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from semlex.diagnostics.status import CollectionStatus, CountedCollection
from semlex.errors import ConfigurationError
from semlex.ingest.document_states import DocumentStates
from semlex.ingest.progress import DeleteReport
from semlex.maintenance.reembed import EmbeddingFigures
from semlex.server.answers import OF_THE_OPERATOR
from semlex.server.problems import Problem
from semlex.server.request_context import Current, chunks_response, dict_response, json_response, route
from semlex.server.routes.bodies import (
    ChunkFieldNames,
    CollectionQuery,
    DeleteBody,
    DescriptionBody,
    DocumentName,
    DocumentsBody,
    FilterParameter,
    Id,
    Word,
)
from semlex.store.write.sources import SourceInfo
from semlex.types.documents import Document, Outline, StoredChunk, WholeDocument, json_value
from semlex.types.query_log import QueryLogSummary

router = APIRouter(tags=["documents"])
MAX_PAGE = 1_000
NO_DOCUMENT = "the document does not exist, or several have this name: give its source as well, as docs: keys.md"


@route(router, "GET", "/v1/documents", "list documents", returns=DocumentStates)
async def documents(
    context: Current,
    collection: CollectionQuery = None,
    source: Word | None = None,
    limit: Annotated[int | None, Query(ge=1, le=MAX_PAGE)] = None,
    after: DocumentName | None = None,
) -> Response:
    """List the documents that were read from files, with their states; `next_after` is the next page's `after`."""
    opened = await context.collection(collection)
    found = await opened.documents.list(source, limit=limit, after=after)
    return json_response(json_value(found))


@route(router, "GET", "/v1/document", "get document", returns=WholeDocument)
async def document(context: Current, document: DocumentName, collection: CollectionQuery = None) -> Response:
    """Return the text of a document with its chunks."""
    opened = await context.collection(collection)
    try:
        return await dict_response(context, await opened.documents.get(document))
    except ConfigurationError:
        raise Problem(404, NO_DOCUMENT) from None


@route(router, "GET", "/v1/outline", "outline", returns=Outline)
async def outline(context: Current, document: DocumentName, collection: CollectionQuery = None) -> Response:
    """Return the headings of a document, each with its line and the chunks below it."""
    opened = await context.collection(collection)
    try:
        return json_response((await opened.documents.outline(document)).to_dict())
    except ConfigurationError:
        raise Problem(404, NO_DOCUMENT) from None


@route(router, "POST", "/v1/documents", "add documents", returns={"ids": [str]}, status=201)
async def add(context: Current, body: DocumentsBody) -> Response:
    """Store documents without splitting them: each becomes one chunk."""
    opened = await context.collection(body.collection, create=body.create)
    given = [Document(**one.model_dump(exclude_none=True)) for one in body.documents]
    ids = await opened.add_documents(given, on_duplicate=body.on_duplicate)
    return json_response({"ids": list(ids)}, 201)


@route(router, "DELETE", "/v1/documents", "delete", returns=DeleteReport)
async def delete(context: Current, body: DeleteBody) -> Response:
    """Delete the chunks, with their vectors, that meet all given conditions; at least one condition is needed."""
    opened = await context.collection(body.collection)
    given = body.model_dump(exclude={"collection", "ids"})
    return json_response(json_value(await opened.delete(body.ids, **given)))


@route(router, "GET", "/v1/chunks", "list chunks", returns={"chunks": [StoredChunk]})
async def chunks(
    context: Current,
    collection: CollectionQuery = None,
    filters: FilterParameter | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    after: Id | None = None,
    *,
    fields: ChunkFieldNames | None = None,
) -> Response:
    """List chunks in the order of their keys, without a query."""
    opened = await context.collection(collection)
    found = await opened.list_chunks(filters, limit=limit, after=after)
    return await chunks_response(context, found, None if fields is None else fields.split(","))


@route(router, "GET", "/v1/chunks/{id:path}", "get chunks", returns=StoredChunk)
async def chunk(context: Current, id: Id, collection: CollectionQuery = None) -> Response:  # noqa: A002 - the path's word
    """Return one chunk by its id."""
    opened = await context.collection(collection)
    found = await opened.get([id])
    if not found:
        raise Problem(404, "no chunk has this id")
    return json_response(found[0].to_dict())


@route(router, "GET", "/v1/count", "count chunks", returns={"chunks": int})
async def count(
    context: Current, collection: CollectionQuery = None, filters: FilterParameter | None = None
) -> Response:
    """Count the chunks that pass a filter."""
    opened = await context.collection(collection)
    return json_response({"chunks": await opened.count(filters)})


@route(router, "GET", "/v1/sources", "list sources", returns={"sources": [SourceInfo]})
async def sources(context: Current, collection: CollectionQuery = None) -> Response:
    """List every source with its counts."""
    opened = await context.collection(collection)
    return json_response({"sources": json_value(await opened.documents.sources())})


collections = APIRouter(tags=["collections"])
NamePath = Annotated[str, Path(pattern=r"^[a-z_][a-z0-9_]{0,47}$")]


@route(collections, "GET", "/v1/collections", "list collections", returns={"collections": [CountedCollection]})
async def list_collections(context: Current) -> Response:
    """List the collections that the caller may see, with their counts; large tables are estimated."""
    found = await context.client.count_collections()
    return json_response({"collections": [json_value(one) for one in found if context.caller.sees(one.name)]})


@route(collections, "GET", "/v1/collections/{name}", "status", returns=CollectionStatus)
async def status(context: Current, name: NamePath, *, exact: bool = False) -> Response:
    """Return the figures of a collection; only callers with the right `admin` see its server and folder."""
    opened = await context.collection(name)
    found = (await opened.status(exact=exact)).to_dict()
    hidden = () if context.caller.may("admin") else OF_THE_OPERATOR
    return json_response({key: value for key, value in found.items() if key not in hidden})


@route(
    collections,
    "GET",
    "/v1/collections/{name}/embeddings",
    "list embeddings",
    returns={"embeddings": [EmbeddingFigures]},
)
async def embeddings(context: Current, name: NamePath) -> Response:
    """List the sets of vectors of a collection."""
    opened = await context.collection(name)
    return json_response({"embeddings": json_value(await opened.embeddings.list())})


@route(collections, "GET", "/v1/collections/{name}/description", "description", returns={"description": str})
async def description(context: Current, name: NamePath) -> Response:
    """Return the description of a collection: the stored one, else titles of its documents."""
    opened = await context.collection(name)
    return json_response({"description": await opened.description()})


@route(collections, "PUT", "/v1/collections/{name}/description", "describe", returns={"description": str})
async def describe(context: Current, name: NamePath, body: DescriptionBody) -> Response:
    """Store a description of the collection."""
    opened = await context.collection(name)
    await opened.describe(body.text)
    return json_response({"description": await opened.description()})


@route(collections, "GET", "/v1/collections/{name}/queries", "queries", returns=QueryLogSummary)
async def queries(context: Current, name: NamePath) -> Response:
    """Return the most frequent questions to the collection, if they are logged."""
    opened = await context.collection(name)
    return json_response((await opened.queries.summary()).to_dict())


@route(collections, "DELETE", "/v1/collections/{name}", "drop", status=204)
async def drop(context: Current, name: NamePath) -> Response:
    """Drop a collection with everything in it."""
    context.check(name)
    context.open_client.forget(name)
    await context.client.drop(name)
    return Response(status_code=204)
