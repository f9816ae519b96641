"""Extract metadata from texts with a user's function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from semlex import _core
from semlex.errors import FieldError
from semlex.ingest.loaders.base import LoadError
from semlex.json_values import json_tree
from semlex.types.documents import MAX_METADATA_BYTES, MAX_METADATA_DEPTH, Document
from semlex.validation import callable_errors, check_parameters, refuse, wrong_type

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Extract = Callable[[Document], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Reads metadata out of a text; sync or async."""


@dataclass(frozen=True, slots=True)
class MetadataExtraction:
    """A function that extracts metadata from texts.

    Given metadata (front matter, table fields, `Document.metadata`) takes precedence.

    Attributes:
        extract: Receives a `Document` (text, metadata so far, path or id); returns a mapping or an awaitable. A
            function without ``async`` is called in another thread than the event loop's.
        per: Whether it gets each ``document`` or each ``chunk``. An added document is one chunk.
    """

    extract: Extract
    per: Literal["document", "chunk"] = "document"

    def __post_init__(self) -> None:
        check_parameters(
            wrong_type("extract_metadata", "function", None) if self.extract is None else [],
            callable_errors("extract_metadata", self.extract),
            [] if self.per in ("document", "chunk") else refuse("per", "not_usable", "'document' or 'chunk'"),
        )

    def merged(self, document: Document, loop: AbstractEventLoop | None) -> dict[str, Any]:
        """Return a document's metadata with the function's result; blocking, never in the loop's thread."""
        own = dict(document.metadata)
        try:
            found = self.extract(document)
            if inspect.isawaitable(found):
                found = _awaited(found, loop)
        except Exception as error:
            raise _failed(f"extract_metadata raised {type(error).__name__}") from error
        if not isinstance(found, Mapping):
            raise _failed(f"extract_metadata returned {type(found).__name__} instead of a mapping")
        metadata: dict[str, Any] = json_tree({**found, **own})
        limits = {"max_bytes": MAX_METADATA_BYTES, "max_depth": MAX_METADATA_DEPTH}
        if errors := _core.validate_rows([("metadata", "jsonb", [metadata], limits)], None):
            raise _failed(f"what extract_metadata returned cannot be stored: {FieldError(-1, *errors[0][1:])}")
        return metadata


def checked_extraction(value: MetadataExtraction | Extract | None) -> MetadataExtraction | None:
    """Return the option `extract_metadata` as a value."""
    return value if value is None or isinstance(value, MetadataExtraction) else MetadataExtraction(value)


def _awaited(found: Awaitable[Mapping[str, Any]], loop: AbstractEventLoop | None) -> Mapping[str, Any]:
    async def wait() -> Mapping[str, Any]:
        return await found

    return asyncio.run(wait()) if loop is None else asyncio.run_coroutine_threadsafe(wait(), loop).result()


def _failed(message: str) -> LoadError:
    return LoadError("extraction_failed", f"{message}: correct the function")
