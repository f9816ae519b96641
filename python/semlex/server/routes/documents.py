"""Documents and chunks: listed, read, added, deleted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from semlex.errors import ConfigurationError
from semlex.server.asked import Ask, answered, answered_chunks, answered_dict, does
from semlex.server.problems import Problem
from semlex.server.routes.schemas import (
    ChunkFieldNames,
    CollectionQuery,
    DeleteBody,
    DocumentName,
    DocumentsBody,
    FilterParameter,
    Id,
    Word,
)
from semlex.types.documents import Document, json_value

router = APIRouter(tags=["documents"])
MAX_PAGE = 1_000
NO_DOCUMENT = "there is no such document, or several have this name: give its source as well, as docs: keys.md"


@does(router, "GET", "/v1/documents", "list documents")
async def documents(
    asked: Ask,
    collection: CollectionQuery = None,
    source: Word | None = None,
    limit: Annotated[int | None, Query(ge=1, le=MAX_PAGE)] = None,
    after: DocumentName | None = None,
) -> Response:
    """The documents that were read from files, with their states; `next_after` is the `after` of the next page."""
    opened = await asked.collection(collection)
    found = await opened.documents(source, limit=limit, after=after)
    return answered(json_value(found))


@does(router, "GET", "/v1/document", "get document")
async def document(asked: Ask, document: DocumentName, collection: CollectionQuery = None) -> Response:
    """The text of a document with its chunks."""
    opened = await asked.collection(collection)
    try:
        return await answered_dict(asked, await opened.get_document(document))
    except ConfigurationError:
        raise Problem(404, NO_DOCUMENT) from None


@does(router, "GET", "/v1/outline", "outline")
async def outline(asked: Ask, document: DocumentName, collection: CollectionQuery = None) -> Response:
    """The headings of a document, each with its line and the chunks below it."""
    opened = await asked.collection(collection)
    try:
        return answered((await opened.outline(document)).to_dict())
    except ConfigurationError:
        raise Problem(404, NO_DOCUMENT) from None


@does(router, "POST", "/v1/documents", "add documents", status=201)
async def add(asked: Ask, body: DocumentsBody) -> Response:
    """Stores documents as they are: one document, one chunk."""
    opened = await asked.collection(body.collection, create=body.create)
    given = [Document(**one.model_dump(exclude_none=True)) for one in body.documents]
    ids = await opened.add_documents(given, on_duplicate=body.on_duplicate)
    return answered({"ids": list(ids)}, 201)


@does(router, "DELETE", "/v1/documents", "delete")
async def delete(asked: Ask, body: DeleteBody) -> Response:
    """Deletes chunks with their vectors; what is given must all hold, and something must be given."""
    opened = await asked.collection(body.collection)
    given = body.model_dump(exclude={"collection", "ids"})
    return answered(json_value(await opened.delete(body.ids, **given)))


@does(router, "GET", "/v1/chunks", "list chunks")
async def chunks(
    asked: Ask,
    collection: CollectionQuery = None,
    filters: FilterParameter | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    after: Id | None = None,
    *,
    fields: ChunkFieldNames | None = None,
) -> Response:
    """Chunks without a question, in the order of their keys."""
    opened = await asked.collection(collection)
    found = await opened.list(filters, limit=limit, after=after)
    return await answered_chunks(asked, found, None if fields is None else fields.split(","))


@does(router, "GET", "/v1/chunks/{id:path}", "get chunks")
async def chunk(asked: Ask, id: Id, collection: CollectionQuery = None) -> Response:  # noqa: A002 - the path's word
    """One chunk by its id."""
    opened = await asked.collection(collection)
    found = await opened.get([id])
    if not found:
        raise Problem(404, "there is no chunk of this id")
    return answered(found[0].to_dict())


@does(router, "GET", "/v1/count", "count chunks")
async def count(asked: Ask, collection: CollectionQuery = None, filters: FilterParameter | None = None) -> Response:
    """How many chunks pass a filter."""
    opened = await asked.collection(collection)
    return answered({"chunks": await opened.count(filters)})


@does(router, "GET", "/v1/sources", "list sources")
async def sources(asked: Ask, collection: CollectionQuery = None) -> Response:
    """Every source with its counts."""
    opened = await asked.collection(collection)
    return answered({"sources": json_value(await opened.sources())})
