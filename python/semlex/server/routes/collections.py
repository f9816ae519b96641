"""Collections as a whole."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from semlex.server.asked import Ask, answered, does
from semlex.types.documents import json_value

router = APIRouter(tags=["collections"])
# Where the collection is: host, user and folder are no business of those who only ask it.
OF_THE_OPERATOR = ("server", "data_folder")
NamePath = Annotated[str, Path(pattern=r"^[a-z_][a-z0-9_]{0,47}$")]


@does(router, "GET", "/v1/collections", "list collections")
async def collections(asked: Ask) -> Response:
    """Every collection that the caller sees, with its counts; large tables are estimated."""
    found = await asked.client.count_collections()
    return answered({"collections": [json_value(one) for one in found if asked.caller.sees(one.name)]})


@does(router, "GET", "/v1/collections/{name}", "status")
async def status(asked: Ask, name: NamePath, *, exact: bool = False) -> Response:
    """The figures of a collection; its server and folder are shown to those with the right `admin`."""
    opened = await asked.collection(name)
    found = (await opened.status(exact=exact)).to_dict()
    hidden = () if asked.caller.may("admin") else OF_THE_OPERATOR
    return answered({key: value for key, value in found.items() if key not in hidden})


@does(router, "GET", "/v1/collections/{name}/embeddings", "list embeddings")
async def embeddings(asked: Ask, name: NamePath) -> Response:
    """The sets of vectors of a collection."""
    opened = await asked.collection(name)
    return answered({"embeddings": json_value(await opened.embeddings())})


@does(router, "GET", "/v1/collections/{name}/queries", "queries")
async def queries(asked: Ask, name: NamePath) -> Response:
    """The questions that the collection was asked most often, where they are logged."""
    opened = await asked.collection(name)
    return answered((await opened.queries()).to_dict())


@does(router, "DELETE", "/v1/collections/{name}", "drop", status=204)
async def drop(asked: Ask, name: NamePath) -> Response:
    """Drops a collection with everything in it."""
    asked.check(name)
    asked.lease.forget(name)
    await asked.client.drop(name)
    return Response(status_code=204)
