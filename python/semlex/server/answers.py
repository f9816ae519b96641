"""JSON schemas of answers, derived from the classes whose `to_dict` routes and tools return."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from semlex.diagnostics.status import CollectionStatus
from semlex.types.answers import Answer, Context, ContextSource
from semlex.types.documents import StoredChunk
from semlex.types.explanations import Explanation
from semlex.types.fields import Facet, Facets, FieldSummaries, FieldSummary
from semlex.types.queries import Route
from semlex.types.results import SearchResult, SearchResults

Schema = dict[str, Any]
# A class, another type, the keys of an object with their shapes (one that ends with ? may be missing), or a list with
# the shape of its elements.
Shape = Any

NAMES = {"SearchResult": "Hit", "StoredChunk": "Chunk"}
SCALARS: dict[Any, Schema] = {
    Any: {},
    NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "description": "In hexadecimal digits."},
    UUID: {"type": "string", "format": "uuid"},
    datetime: {"type": "string", "format": "date-time"},
    Path: {"type": "string"},
}
_PASSAGE = {"number": int, "place": str, "location": str, "headings": str, "text": str, "chunk_ids": list[str]}
# What `to_dict` gives beside the attributes, or instead of them; None: it leaves an attribute out.
CHANGED: dict[type, dict[str, Shape]] = {
    SearchResults: {"hits": list[SearchResult]},
    Answer: {"context": None, "text": str, "route": Route | None, "unsupported": list[str], "sources": [_PASSAGE]},
    Context: {"results": None, "left_out": [{"id": str, "location": str}]},
    ContextSource: {"hits": list[str], "location": str},
    Explanation: {"code": str, "found": bool},
    Facets: {"facets": dict[str, Facet]},
    FieldSummaries: {"fields": list[FieldSummary]},
}
# Host, user and folder of the database: for the operator alone.
OF_THE_OPERATOR = ("server", "data_folder")
# Keys that may be missing: those that a request leaves out by `fields`, and those of the operator.
OPTIONAL: dict[type, frozenset[str]] = {
    kind: frozenset(one.name for one in fields(kind)) for kind in (SearchResult, StoredChunk)
} | {CollectionStatus: frozenset(OF_THE_OPERATOR)}
ATTRIBUTE = re.compile(r"^ {4}(\w+(?:, \w+)*): ((?:.+\n?)(?: {8}.*\n?)*)", re.MULTILINE)


class Schemas:
    """JSON schemas of Python types, and the shared definitions that they refer to."""

    def __init__(self, place: str = "#/$defs/") -> None:
        self.definitions: dict[str, Schema] = {}
        self._place = place

    def of(self, shape: Shape) -> Schema:
        """Return the schema of a type, or of a dict or list that describes an answer."""
        origin: Any = get_origin(shape)
        parts = get_args(shape)
        if isinstance(shape, Mapping):
            made = self._object(shape)
        elif isinstance(shape, list):
            made = {"type": "array", "items": self.of(shape[0])}
        elif origin is Annotated:
            made = {"description": parts[1]} | self.of(parts[0])
        elif origin in (Union, UnionType):
            made = {"anyOf": [self.of(one) for one in parts]}
        elif origin is Literal:
            made = {"type": "string", "enum": list(parts)}
        elif origin is not None and issubclass(origin, Mapping):
            made = {"type": "object", "additionalProperties": self.of(parts[1])}
        elif origin is not None:
            made = {"type": "array", "items": self.of(parts[0])}
        else:
            made = dict(SCALARS[shape]) if shape in SCALARS else self._reference(shape)
        return made

    def _object(self, shapes: Mapping[str, Shape], optional: frozenset[str] = frozenset()) -> Schema:
        required = [name for name in shapes if name not in optional and not name.endswith("?")]
        properties = {name.removesuffix("?"): self.of(shape) for name, shape in shapes.items()}
        return {"type": "object", "properties": properties, "required": required}

    def _reference(self, kind: type) -> Schema:
        name = NAMES.get(kind.__name__, kind.__name__)
        if name not in self.definitions:
            self.definitions[name] = {}  # it may hold itself
            made = self._object(attributes(kind), OPTIONAL.get(kind, frozenset()))
            self.definitions[name] = {"title": name, "description": (kind.__doc__ or "").partition("\n\n")[0]} | made
        return {"$ref": self._place + name}


@cache
def attributes(kind: type) -> dict[str, Shape]:
    """Return the keys of a class's `to_dict`, with types and descriptions."""
    hints = get_type_hints(kind, _names(kind), include_extras=True)
    if is_dataclass(kind):
        known = [one.name for one in fields(kind) if not one.name.startswith("_")]
    elif hasattr(kind, "_fields"):
        known = list(kind._fields)
    else:  # a list or a mapping with attributes
        known = list(inspect.get_annotations(kind))
    texts = _descriptions(kind)
    found = {name: Annotated[hints[name], texts[name]] if name in texts else hints[name] for name in known}
    found |= CHANGED.get(kind, {})
    return {name: shape for name, shape in found.items() if shape is not None}


def chosen(kind: type, *names: str) -> dict[str, Shape]:
    """Return some of the keys of a class's `to_dict`, with types and descriptions."""
    return {name: attributes(kind)[name] for name in names}


def _names(kind: type) -> dict[str, Any]:
    """Return the names used in a class's annotations, including those imported for type checkers only."""
    found: dict[str, Any] = {}
    for one in kind.__mro__:
        if not one.__module__.startswith("semlex."):
            continue
        module = sys.modules[one.__module__]
        found |= vars(module)
        for block in ast.parse(inspect.getsource(module)).body:
            for node in block.body if isinstance(block, ast.If) else ():
                if isinstance(node, ast.ImportFrom) and node.module is not None:
                    for alias in node.names:
                        with suppress(ImportError):  # of an extra
                            found[alias.asname or alias.name] = getattr(import_module(node.module), alias.name)
    return found


def _descriptions(kind: type) -> dict[str, str]:
    """Return the descriptions below ``Attributes:`` in the docstrings of a class and its bases, by attribute."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        text = inspect.cleandoc(one.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
        told = ATTRIBUTE.findall(text)
        found |= {name: " ".join(words.split()) for names, words in told for name in names.split(", ")}
    return found
