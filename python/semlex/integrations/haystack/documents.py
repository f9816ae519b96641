"""Documents of Haystack as those of semlex, and chunks as documents of Haystack."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from haystack.dataclasses import Document

from semlex.errors import FieldError, ValidationError
from semlex.integrations.conversion import metadata_with_place, score_of
from semlex.types.documents import Document as SemlexDocument
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import numpy as np
    from numpy.typing import NDArray

    from semlex.types.documents import StoredChunk
    from semlex.types.results import SearchResult

# What a collection does not store, and what helps.
REFUSED = {
    "blob": "None: a collection stores texts; keep the file elsewhere and its address in meta",
    "sparse_embedding": "None: the keyword index is made of the text",
}


def checked_documents(documents: object) -> list[Document]:
    """The documents of a list.

    Raises:
        ValidationError: It is no list of documents, or one has what a collection does not store.
    """
    if not isinstance(documents, (list, tuple)):
        raise ValidationError([FieldError(-1, None, "documents", "wrong_type", "list of Document", _kind(documents))])
    errors = []
    for row, one in enumerate(documents):
        if not isinstance(one, Document):
            errors.append(FieldError(row, None, "document", "wrong_type", "Document", _kind(one)))
            continue
        if one.content is None:
            errors.append(FieldError(row, one.id, "content", "missing", "the text that is searched"))
        for name, remedy in REFUSED.items():
            if getattr(one, name) is not None:
                errors.append(FieldError(row, one.id, name, "wrong_type", remedy, _kind(getattr(one, name))))
    if errors:
        raise ValidationError(errors)
    return list(documents)


def _kind(value: object) -> str:
    return type(value).__name__


def stored_documents(documents: Sequence[Document]) -> list[SemlexDocument]:
    """What is stored of checked documents. Their times ascend, for documents are listed in the order of these."""
    now = utc_now()
    return [
        SemlexDocument(one.content or "", one.meta, one.id, created_at=now + timedelta(microseconds=number))
        for number, one in enumerate(documents)
    ]


def document_of(chunk: StoredChunk, vectors: Mapping[str, NDArray[np.float32]], score: float | None = None) -> Document:
    """A chunk as a document of Haystack.

    Args:
        chunk: As stored.
        vectors: By id; a chunk without one has no embedding.
        score: Of a hit.
    """
    vector = vectors.get(chunk.id)
    meta: dict[str, Any] = metadata_with_place(chunk)
    embedding = None if vector is None else vector.tolist()
    return Document(id=chunk.id, content=chunk.content, meta=meta, score=score, embedding=embedding)


def document_of_hit(hit: SearchResult, vectors: Mapping[str, NDArray[np.float32]]) -> Document:
    """A hit as a document of Haystack, with the score that has put it in its place."""
    return document_of(hit, vectors, score_of(hit))
