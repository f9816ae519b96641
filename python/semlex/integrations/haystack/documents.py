"""Converts documents and filters between Haystack and semlex, and summarises metadata."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from haystack.dataclasses import Document
from haystack.errors import FilterError

from semlex.errors import FieldError, ValidationError
from semlex.filters.fields import refusal
from semlex.filters.tree import F
from semlex.integrations.calls import NOTHING, all_of, any_of, check_depth, has_id, key_field, metadata_with_place
from semlex.types.documents import Document as SemlexDocument
from semlex.types.documents import utc_now

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from semlex.filters.tree import FilterTree
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
    """Check that each document has a text, and nothing that a collection cannot store."""
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
    """Convert checked documents; their times ascend, because documents are listed by time."""
    # Haystack's contract compares lists of documents, so their order must be that of the call.
    now = utc_now()
    return [
        SemlexDocument(one.content or "", one.meta, one.id, created_at=now + timedelta(microseconds=number))
        for number, one in enumerate(documents)
    ]


def document_of(chunk: StoredChunk, vectors: Mapping[str, NDArray[np.float32]], score: float | None = None) -> Document:
    """Convert a chunk to a document of Haystack; `vectors` are by id, `score` is that of a hit."""
    vector = vectors.get(chunk.id)
    meta: dict[str, Any] = metadata_with_place(chunk)
    embedding = None if vector is None else vector.tolist()
    return Document(id=chunk.id, content=chunk.content, meta=meta, score=score, embedding=embedding)


def document_of_hit(hit: SearchResult, vectors: Mapping[str, NDArray[np.float32]]) -> Document:
    """Convert a hit to a document of Haystack, with the score that orders the hits."""
    return document_of(hit, vectors, hit.score)


def bare(field: str) -> str:
    """Return the name of a metadata field without the prefix that it has in filters."""
    return field.removeprefix("meta.")


def distinct(metadata: Iterable[Metadata], field: str) -> list[Any]:
    """Return the different values of a field, sorted by text; 1, 1.0, "1" and true are different, as in JSON."""
    values = (one.get(bare(field)) for one in metadata)
    found = {json.dumps(value, sort_keys=True): value for value in values if value is not None}
    return sorted(found.values(), key=lambda value: (str(value), type(value).__name__))


def types(metadata: Iterable[Metadata]) -> dict[str, dict[str, str]]:
    """Return the type of each field: ``int``, ``float``, ``boolean``, or ``keyword`` for others and mixed ones."""
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
    """Return the least and greatest value of a field; None if it has no values, or both numbers and texts."""
    values = [value for value in distinct(metadata, field) if isinstance(value, (int, float, str))]
    are_texts = {isinstance(value, str) for value in values}
    if len(are_texts) != 1:
        return {"min": None, "max": None}
    return {"min": min(values), "max": max(values)}


PLACE = "filters"
GROUPS = ("AND", "OR", "NOT")
ORDER = ("<", "<=", ">", ">=")
MEMBERSHIP = ("in", "not in")
OPERATORS = ("==", "!=", *ORDER, *MEMBERSHIP)
# Fields of a document of Haystack that no filter of semlex looks at, and what helps.
UNFILTERED = {
    "content": "a retriever, which looks into texts",
    "embedding": "the embedding retriever",
    "score": "the scores of a retriever's documents",
    "blob": "meta",
    "sparse_embedding": "meta",
}


def tree_of_haystack(filters: dict[str, Any] | None, *, needed: bool = False) -> FilterTree | None:
    """Convert a filter of Haystack; None stays None."""
    # If `needed`, every group must have a condition, so that a filter that always holds cannot delete everything.
    try:
        return _tree(filters, PLACE, needed=needed) if filters else None
    except ValidationError as error:
        raise FilterError(str(error)) from error


def _tree(filters: object, place: str, *, needed: bool, depth: int = 1) -> FilterTree:
    check_depth(PLACE, depth)  # the place itself is too long to be read
    if not isinstance(filters, dict):
        raise refusal(place, "wrong_type", "dict", type(filters).__name__)
    is_group = "field" not in filters and ("conditions" in filters or filters.get("operator") in GROUPS)
    for key in ("operator", "conditions") if is_group else ("field", "operator", "value"):
        if key not in filters:
            raise refusal(f"{place}.{key}", "missing")
    operator = filters["operator"]
    if is_group:
        return _group(operator, filters["conditions"], place, needed=needed, depth=depth)
    if operator not in OPERATORS:
        raise refusal(f"{place}.operator", "wrong_operator", ", ".join(OPERATORS))
    name = filters["field"]
    if not isinstance(name, str):
        raise refusal(f"{place}.field", "wrong_type", "str", type(name).__name__)
    if needed and operator == "not in" and filters["value"] == []:
        raise refusal(f"{place}.value", "missing", "at least one value; delete_all_documents() deletes all")
    if name == "id":
        return _ids(operator, filters["value"], place)
    if name in UNFILTERED:
        raise refusal(
            f"{place}.field", "wrong_type", f"'id' or a field of meta; instead of {name} use {UNFILTERED[name]}"
        )
    field = F(name) if name.startswith("@") else key_field(*name.removeprefix("meta.").split("."))
    return _condition(field, operator, filters["value"], place)


def _group(operator: object, conditions: object, place: str, *, needed: bool, depth: int) -> FilterTree:
    if operator not in GROUPS:
        raise refusal(f"{place}.operator", "wrong_operator", ", ".join(GROUPS))
    if not isinstance(conditions, list):
        raise refusal(f"{place}.conditions", "wrong_type", "list", type(conditions).__name__)
    if needed and not conditions:
        raise refusal(f"{place}.conditions", "missing", "at least one condition; delete_all_documents() deletes all")
    parts = [
        _tree(one, f"{place}.conditions[{number}]", needed=needed, depth=depth + 1)
        for number, one in enumerate(conditions)
    ]
    if operator == "OR":
        return any_of(parts)
    return all_of(parts) if operator == "AND" else ~all_of(parts)


def _condition(field: F, operator: str, value: object, place: str) -> FilterTree:
    if operator in MEMBERSHIP:
        values = _list(value, place)
        among = [one for one in values if one is not None]
        parts = [field.in_(among)] if among else []
        found = any_of(parts + [_equal(field, None)] * (len(among) < len(values)))
        return found if operator == "in" else ~found
    if operator in {"==", "!="}:
        return _equal(field, value) if operator == "==" else ~_equal(field, value)
    if value is None:
        return NOTHING  # nothing is above or below it
    if isinstance(value, str) and not _is_time(value):
        raise refusal(f"{place}.value", "wrong_type", "a number or a time in ISO form", "another text")
    return {"<": field < value, "<=": field <= value, ">": field > value, ">=": field >= value}[operator]


def _list(value: object, place: str) -> list[Any]:
    if not isinstance(value, list):
        raise refusal(f"{place}.value", "wrong_type", "list", type(value).__name__)
    return value


def _equal(field: F, value: object) -> FilterTree:
    # Haystack does not tell null from missing.
    return field == value if value is not None else (field == None) | ~field.exists()  # noqa: E711


def _ids(operator: str, value: object, place: str) -> FilterTree:
    if operator in ORDER:
        raise refusal(f"{place}.operator", "wrong_operator", "==, !=, in or not in for ids")
    given = _list(value, place) if operator in MEMBERSHIP else [value]
    ids = [one for one in given if isinstance(one, str)]
    if len(ids) < len(given):
        raise refusal(f"{place}.value", "wrong_type", "ids as texts")
    found = has_id(ids)
    return found if operator in {"==", "in"} else ~found


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
