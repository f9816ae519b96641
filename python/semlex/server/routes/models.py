"""Routes of the models, in the formats of OpenAI's embeddings and Cohere's rerank."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from semlex.retriever.served_models import DimensionsError, TextTooLongError, served_embedder, served_reranker
from semlex.server.problems import Problem
from semlex.server.request_context import Current, RequestContext, json_response, route
from semlex.server.routes.bodies import STRICT, Between, Content, Question

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from semlex.retriever.collection import Collection
    from semlex.retriever.served_models import ServedEmbedder, ServedReranker


# Bounds of the servers whose shapes these are.
MAX_INPUTS = 2048
MAX_RERANKED = 1000
MAX_NAME = 500
MAX_DIMENSIONS = 1 << 16


_USAGE = {"prompt_tokens": int, "total_tokens": int}
VECTORS = {
    "object": str,
    "data": [{"object": str, "index": int, "embedding": list[float] | str}],
    "model": str,
    "usage": _USAGE,
}
MODELS = {
    "object": str,
    "data": [{"id": str, "object": str, "created": int, "owned_by": str, "type": Literal["embedding", "rerank"]}],
}
RANKING = {"model": str, "results": [{"index": int, "relevance_score": float, "document?": {"text": str}}]}

ModelName = Annotated[str, Field(min_length=1, max_length=MAX_NAME, description="Name of the model that is served.")]


class ModelBody(BaseModel):
    """A request body: values are not converted between JSON types, and unknown names are refused."""

    model_config = STRICT

    model: ModelName | None = Field(None, description="Name of the model; default: the one that is served.")


class EmbeddingsBody(ModelBody):
    """Texts to embed."""

    input: Content | Annotated[list[Content], Field(min_length=1, max_length=MAX_INPUTS)] = Field(
        description="A text or a list of texts. Lists of token ids are refused: another tokenizer made them."
    )
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="base64: of little-endian float32, exactly as the model returns them."
    )
    dimensions: Annotated[int, Between(1, MAX_DIMENSIONS)] | None = Field(
        None, description="Length of the vectors, if the model supports shortened vectors."
    )
    input_type: Literal["document", "query"] = Field(
        "document", description="Whether the texts are queries or documents, for models that embed them differently."
    )
    user: str | None = Field(None, max_length=MAX_NAME, description="Accepted from clients that send it, and ignored.")


class DocumentText(BaseModel):
    """A document as an object."""

    model_config = STRICT

    text: Content


class RerankBody(ModelBody):
    """A query with texts to be judged."""

    query: Question
    documents: Annotated[list[Content | DocumentText], Field(min_length=1, max_length=MAX_RERANKED)]
    top_n: Annotated[int, Between(1, MAX_RERANKED)] | None = Field(
        None, description="Maximum number of results; default: all."
    )
    return_documents: bool = Field(False, description="Whether results hold the texts.")


Model = TypeVar("Model", "ServedEmbedder", "ServedReranker")

router = APIRouter(tags=["models"])


# A text is embedded as a document unless `input_type` says that it is a query: OpenAI's format does not distinguish
# them, and clients of models with a prompt add it themselves.
@route(router, "POST", "/v1/embeddings", "embeddings", returns=VECTORS, rights="read")
async def embeddings(context: Current, body: EmbeddingsBody) -> Response:
    """Return vectors of texts, in OpenAI's format."""
    model = _named(body.model, await served_embedder(_collection(context)))
    texts = [body.input] if isinstance(body.input, str) else body.input
    try:
        vectors, tokens = await model.embed(texts, is_query=body.input_type == "query", dimensions=body.dimensions)
    except TextTooLongError as error:
        raise Problem(413, str(error), kind="text-too-long") from None
    except DimensionsError as error:
        raise Problem(409, f"{error}; leave dimensions out", kind="dimensions") from None
    data = [
        {"object": "embedding", "index": row, "embedding": _written(vector, body.encoding_format)}
        for row, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json_response({"object": "list", "data": data, "model": model.name, "usage": usage})


@route(router, "GET", "/v1/models", "models", returns=MODELS, rights="read")
async def models(context: Current) -> Response:
    """List the models that are served, by the names that the other routes accept, in OpenAI's format."""
    collection = _collection(context)
    served = (("embedding", await served_embedder(collection)), ("rerank", await served_reranker(collection)))
    data = [
        # When a model was made is not known here.
        {"id": model.name, "object": "model", "created": 0, "owned_by": "semlex", "type": kind}
        for kind, model in served
        if model is not None
    ]
    return json_response({"object": "list", "data": data})


@route(router, "POST", "/v1/rerank", "rerank", returns=RANKING, also=("/v2/rerank",), rights="read")
async def rerank(context: Current, body: RerankBody) -> Response:
    """Score how well each document answers a query, 0 to 1, best first, in Cohere's format."""
    model = _named(body.model, await served_reranker(_collection(context)))
    texts = [one if isinstance(one, str) else one.text for one in body.documents]
    scores = (await model.score(body.query, texts)).tolist()
    best = sorted(range(len(texts)), key=lambda row: -scores[row])[: body.top_n]
    results: list[dict[str, Any]] = [{"index": row, "relevance_score": scores[row]} for row in best]
    if body.return_documents:
        for one in results:
            one["document"] = {"text": texts[one["index"]]}
    return json_response({"model": model.name, "results": results})


# These routes use the models of the collection that the settings name.
def _collection(context: RequestContext) -> Collection:
    """Return the settings' collection, for its models: every caller may use them, since they contain no data."""
    return context.client.collection(context.default, create=False)


def _named(name: str | None, model: Model | None) -> Model:
    if model is None:
        raise Problem(404, "this server has no model of this kind: name one in its settings", kind="no-model")
    if name not in (None, model.name):
        raise Problem(404, f"unknown model; this server has {model.name}", kind="unknown-model")
    return model


def _written(vector: NDArray[np.float32], encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
