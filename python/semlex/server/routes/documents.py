"""Documents and chunks: listed, read, added, deleted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from semlex.errors import ConfigurationError
from semlex.server.problems import Problem
from semlex.server.request_context import Ask, answered, answered_chunks, answered_dict, does
from semlex.server.routes.bodies import (
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


collections = APIRouter(tags=["collections"])
# Where the collection is: host, user and folder are no business of those who only ask it.
OF_THE_OPERATOR = ("server", "data_folder")
NamePath = Annotated[str, Path(pattern=r"^[a-z_][a-z0-9_]{0,47}$")]


@does(collections, "GET", "/v1/collections", "list collections")
async def list_collections(asked: Ask) -> Response:
    """Every collection that the caller sees, with its counts; large tables are estimated."""
    found = await asked.client.count_collections()
    return answered({"collections": [json_value(one) for one in found if asked.caller.sees(one.name)]})


@does(collections, "GET", "/v1/collections/{name}", "status")
async def status(asked: Ask, name: NamePath, *, exact: bool = False) -> Response:
    """The figures of a collection; its server and folder are shown to those with the right `admin`."""
    opened = await asked.collection(name)
    found = (await opened.status(exact=exact)).to_dict()
    hidden = () if asked.caller.may("admin") else OF_THE_OPERATOR
    return answered({key: value for key, value in found.items() if key not in hidden})


@does(collections, "GET", "/v1/collections/{name}/embeddings", "list embeddings")
async def embeddings(asked: Ask, name: NamePath) -> Response:
    """The sets of vectors of a collection."""
    opened = await asked.collection(name)
    return answered({"embeddings": json_value(await opened.embeddings())})


@does(collections, "GET", "/v1/collections/{name}/queries", "queries")
async def queries(asked: Ask, name: NamePath) -> Response:
    """The questions that the collection was asked most often, where they are logged."""
    opened = await asked.collection(name)
    return answered((await opened.queries()).to_dict())


@does(collections, "DELETE", "/v1/collections/{name}", "drop", status=204)
async def drop(asked: Ask, name: NamePath) -> Response:
    """Drops a collection with everything in it."""
    asked.check(name)
    asked.lease.forget(name)
    await asked.client.drop(name)
    return Response(status_code=204)
