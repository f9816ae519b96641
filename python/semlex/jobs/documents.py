"""Documents as JSON, in the arguments of a job, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError
from semlex.ingest.given_documents import GivenDocuments
from semlex.types.documents import Document, json_value

if TYPE_CHECKING:
    from semlex.ingest.given_documents import Given

TIMES = ("created_at", "updated_at")
NAMES = frozenset(one.name for one in fields(Document))


def documents_to_json(documents: Given) -> list[dict[str, Any]]:
    """Documents, checked, each with an id; what is empty is left out."""
    taken = GivenDocuments.taken(documents)
    if taken.vectors is not None:
        raise ConfigurationError("documents of a job bring no vectors: leave these out, or call add_documents()")
    given = taken.checked(None)
    columns = {
        "content": given.contents,
        "metadata": given.metadata,
        "id": given.ids,
        "parent_id": given.parent_ids,
        "child_ids": given.child_ids,
        "created_at": given.created_at,
        "updated_at": given.updated_at,
        "language": given.languages,
        "timestamp_start": given.timestamps[0],
        "timestamp_end": given.timestamps[1],
    }
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return [{name: json_value(value) for name, value in row.items() if value not in (None, [], {})} for row in rows]


def documents_from_json(rows: object) -> list[Document]:
    """The documents of a job, as far as their shape goes; adding them checks the rest."""
    if not isinstance(rows, list) or not rows:
        raise ConfigurationError("documents must be a list of objects, at least one")
    documents = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or not row.keys() <= NAMES or not isinstance(row.get("content"), str):
            raise ConfigurationError(
                f"documents: row {number} must be an object with content and other fields of a document"
            )
        try:
            times = {name: datetime.fromisoformat(row[name]) for name in TIMES if name in row}
        except (TypeError, ValueError):
            raise ConfigurationError(f"documents: row {number} has a time that is not in ISO 8601") from None
        documents.append(Document(**{**row, **times}))
    return documents
