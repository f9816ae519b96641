"""The models by themselves, in the shapes that other programs know: OpenAI's embeddings, Cohere's rerank.

Both are those of the collection of the settings. A text is embedded as a document unless `input_type` says that it is a
query: OpenAI's shape does not tell the two apart, and clients of models with a prompt put it in front themselves.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import APIRouter
from starlette.responses import Response

from semlex.retriever.models.served import DimensionsError, TextTooLongError, served_embedder, served_reranker
from semlex.server.asked import Ask, answered, does
from semlex.server.problems import Problem
from semlex.server.routes.model_bodies import EmbeddingsBody, RerankBody

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from semlex.retriever.collection import Collection
    from semlex.retriever.models.served import ServedEmbedder, ServedReranker
    from semlex.server.asked import Asked

Model = TypeVar("Model", "ServedEmbedder", "ServedReranker")

router = APIRouter(tags=["models"])


@does(router, "POST", "/v1/embeddings", "embeddings", rights="read")
async def embeddings(asked: Ask, body: EmbeddingsBody) -> Response:
    """Vectors of texts, in OpenAI's shape."""
    model = _named(body.model, await served_embedder(_collection(asked)))
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
    return answered({"object": "list", "data": data, "model": model.name, "usage": usage})


@does(router, "GET", "/v1/models", "models", rights="read")
async def models(asked: Ask) -> Response:
    """The models that are served, by the names that the other routes take, in OpenAI's shape."""
    collection = _collection(asked)
    served = (("embedding", await served_embedder(collection)), ("rerank", await served_reranker(collection)))
    data = [
        # When a model was made is not known here.
        {"id": model.name, "object": "model", "created": 0, "owned_by": "semlex", "type": kind}
        for kind, model in served
        if model is not None
    ]
    return answered({"object": "list", "data": data})


@does(router, "POST", "/v1/rerank", "rerank", also=("/v2/rerank",), rights="read")
async def rerank(asked: Ask, body: RerankBody) -> Response:
    """How well each document answers a query, 0 to 1, best first, in Cohere's shape."""
    model = _named(body.model, await served_reranker(_collection(asked)))
    texts = [one if isinstance(one, str) else one.text for one in body.documents]
    scores = (await model.score(body.query, texts)).tolist()
    best = sorted(range(len(texts)), key=lambda row: -scores[row])[: body.top_n]
    results: list[dict[str, Any]] = [{"index": row, "relevance_score": scores[row]} for row in best]
    if body.return_documents:
        for one in results:
            one["document"] = {"text": texts[one["index"]]}
    return answered({"model": model.name, "results": results})


def _collection(asked: Asked) -> Collection:
    """That of the settings. Whoever may ask at all may use its models: they hold nothing of it."""
    return asked.client.collection(asked.lease.settings.collection, create=False)


def _named(name: str | None, model: Model | None) -> Model:
    """The model, where it is the one that is asked for.

    Raises:
        Problem: It is not.
    """
    if model is None:
        raise Problem(404, "no model of this kind is open here: name one in the server's settings", kind="no-model")
    if name not in (None, model.name):
        raise Problem(404, f"no such model is served; known: {model.name}", kind="unknown-model")
    return model


def _written(vector: NDArray[np.float32], encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
