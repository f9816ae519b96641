"""Metadata that a function of the user's reads out of texts: called, checked, merged with what was given by hand."""

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
    """A function that reads metadata out of texts.

    What was given by hand (front matter, a table's fields, `Document.metadata`) wins over what the function gives.

    Attributes:
        extract: Gets a `Document` (text, metadata so far, and the path of its file or its id) and returns a mapping, or
            something to await. A function without ``async`` is called in a thread other than the event loop's.
        per: Whether it gets each ``document`` as a whole, or each ``chunk`` of it. An added document is one chunk.
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
        """The metadata of a document with what the function gives; blocking, and never in the loop's own thread.

        Args:
            document: Given to the function.
            loop: Where something that is to be awaited runs; None: in a loop of its own.

        Raises:
            LoadError: The function fails, or gives what cannot be stored.
        """
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
    """What a user gives for `extract_metadata`."""
    return value if value is None or isinstance(value, MetadataExtraction) else MetadataExtraction(value)


def _awaited(found: Awaitable[Mapping[str, Any]], loop: AbstractEventLoop | None) -> Mapping[str, Any]:
    async def wait() -> Mapping[str, Any]:
        return await found

    return asyncio.run(wait()) if loop is None else asyncio.run_coroutine_threadsafe(wait(), loop).result()


def _failed(message: str) -> LoadError:
    return LoadError("extraction_failed", f"{message}: correct the function")
