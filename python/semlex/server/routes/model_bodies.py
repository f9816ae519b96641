"""What requests to the models hold, with their limits."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from semlex.server.routes.schemas import Between, Content, Question

# Bounds of the servers whose shapes these are.
MAX_INPUTS = 2048
MAX_RERANKED = 1000
MAX_NAME = 500
MAX_DIMENSIONS = 1 << 16

ModelName = Annotated[str, Field(min_length=1, max_length=MAX_NAME, description="Name of the model that is served.")]


class ModelBody(BaseModel):
    """A body: JSON's types are not turned into each other, and unknown names are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    model: ModelName | None = Field(None, description="Name of the model; default: the one that is served.")


class EmbeddingsBody(ModelBody):
    """Texts to embed."""

    input: Content | Annotated[list[Content], Field(min_length=1, max_length=MAX_INPUTS)] = Field(
        description="A text or a list of texts. Lists of token numbers are those of another model, and refused."
    )
    encoding_format: Literal["float", "base64"] = Field(
        "float", description="base64: of little-endian float32, bit by bit the model's."
    )
    dimensions: Annotated[int, Between(1, MAX_DIMENSIONS)] | None = Field(
        None, description="Length of the vectors, where the model was trained to be cut."
    )
    input_type: Literal["document", "query"] = Field(
        "document", description="What the texts are, for models that embed queries in another way."
    )
    user: str | None = Field(None, max_length=MAX_NAME, description="Taken from clients that send it, and not kept.")


class DocumentText(BaseModel):
    """A document as an object."""

    model_config = ConfigDict(strict=True, extra="forbid")

    text: Content


class RerankBody(ModelBody):
    """A query with texts to be judged."""

    query: Question
    documents: Annotated[list[Content | DocumentText], Field(min_length=1, max_length=MAX_RERANKED)]
    top_n: Annotated[int, Between(1, MAX_RERANKED)] | None = Field(None, description="Most results; default: all.")
    return_documents: bool = Field(False, description="Whether results hold the texts.")
