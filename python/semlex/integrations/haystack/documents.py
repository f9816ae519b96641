"""Documents of Haystack as those of semlex and back, and what their metadata holds."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from haystack.dataclasses import Document

from semlex.errors import FieldError, ValidationError
from semlex.integrations.calls import metadata_with_place, score_of
from semlex.types.documents import Document as SemlexDocument
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.types.documents import StoredChunk
    from semlex.types.results import SearchResult

Metadata = dict[str, Any]
TYPES: dict[type, str] = {bool: "boolean", int: "int", float: "float"}
# What a collection does not store, and what helps.
REFUSED = {
    "blob": "None: a collection stores texts; keep the file elsewhere and its address in meta",
    "sparse_embedding": "None: the keyword index is made of the text",
}


def checked_documents(documents: object) -> list[Document]:
    """Check a list of documents: each has a text, and nothing that a collection does not store."""
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
    """Checked documents as they are stored; their times ascend, because documents are listed by them."""
    now = utc_now()
    return [
        SemlexDocument(one.content or "", one.meta, one.id, created_at=now + timedelta(microseconds=number))
        for number, one in enumerate(documents)
    ]


def document_of(chunk: StoredChunk, vectors: Mapping[str, NDArray[np.float32]], score: float | None = None) -> Document:
    """Convert a chunk; `vectors` are by id, and `score` is that of a hit."""
    vector = vectors.get(chunk.id)
    meta: dict[str, Any] = metadata_with_place(chunk)
    embedding = None if vector is None else vector.tolist()
    return Document(id=chunk.id, content=chunk.content, meta=meta, score=score, embedding=embedding)


def document_of_hit(hit: SearchResult, vectors: Mapping[str, NDArray[np.float32]]) -> Document:
    """A hit as a document of Haystack, with the score that has put it in its place."""
    return document_of(hit, vectors, score_of(hit))


def bare(field: str) -> str:
    """The name of a field of meta, without the prefix that it has in filters."""
    return field.removeprefix("meta.")


def distinct(metadata: Iterable[Metadata], field: str) -> list[Any]:
    """The different values of a field, as JSON tells them apart (1, 1.0, "1" and true are four), by their texts."""
    values = (one.get(bare(field)) for one in metadata)
    found = {json.dumps(value, sort_keys=True): value for value in values if value is not None}
    return sorted(found.values(), key=lambda value: (str(value), type(value).__name__))


def types(metadata: Iterable[Metadata]) -> dict[str, dict[str, str]]:
    """The type of each field: ``int``, ``float``, ``boolean``; ``keyword`` of all else, and of mixed ones."""
    found: dict[str, set[str]] = {}
    for one in metadata:
        for name, value in one.items():
            if value is not None:
                found.setdefault(name, set()).add(TYPES.get(type(value), "keyword"))
    return {name: {"type": _common(kinds)} for name, kinds in found.items()}


def _common(kinds: set[str]) -> str:
    if kinds == {"int", "float"}:
        return "float"
    return kinds.pop() if len(kinds) == 1 else "keyword"


def extremes(metadata: Iterable[Metadata], field: str) -> dict[str, Any]:
    """The least and the greatest value of a field; None without values, or with numbers and texts."""
    values = [value for value in distinct(metadata, field) if isinstance(value, (int, float, str))]
    are_texts = {isinstance(value, str) for value in values}
    if len(are_texts) != 1:
        return {"min": None, "max": None}
    return {"min": min(values), "max": max(values)}
