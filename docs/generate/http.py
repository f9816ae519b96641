"""The HTTP server: its routes and objects, from its own description in OpenAPI, and its statuses."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from docs.generate.markdown import slug, table, text
from semlex.server.app import create_app
from semlex.server.request_context import REFUSALS, RIGHTS

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = dict[str, Any]
JSON, OK = "application/json", range(200, 300)
KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
}


@cache
def description() -> dict[str, Any]:
    """Return the description of the server in OpenAPI."""
    return create_app(source=SimpleNamespace()).openapi()  # type: ignore[arg-type]


def routes() -> str:
    """Return the list of routes, and a section for each."""
    listed = list(_operations())
    rows = ([f"[`{name}`](#{slug(name)})", one[RIGHTS], text(one["summary"])] for name, one in listed)
    return "\n\n".join([table(["route", "right", "does"], rows), *(part for one in listed for part in _route(*one))])


def objects() -> str:
    """Return a section for each object of requests and answers."""
    parts = []
    for name, schema in sorted(_schemas().items()):
        if schema.get("type") == "object" and not name.endswith("Body") and name != "Problem":
            parts += [f"### {name}", text(schema.get("description", "")), _keys(schema)]
    return "\n\n".join(filter(None, parts))


def statuses() -> str:
    """Return the table of the statuses."""
    return table(
        ["status", "cause", "what helps"],
        ([str(status), text(cause), text(remedy)] for status, (cause, remedy) in REFUSALS.items()),
    )


def _operations() -> Iterator[tuple[str, Schema]]:
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _schemas() -> dict[str, Schema]:
    return description()["components"]["schemas"]


def _route(name: str, operation: Schema) -> Iterator[str]:
    yield f"### {name}"
    yield text(operation["summary"])
    yield f"Right: `{operation[RIGHTS]}`."
    if parameters := operation.get("parameters"):
        rows = (
            [_name(one["name"], required=one["required"]), *_described(one["schema"] | one, required=one["required"])]
            for one in parameters
        )
        yield table(["parameter", "value", "meaning"], rows)
    if "requestBody" in operation:
        yield _keys(_schemas()[operation["requestBody"]["content"][JSON]["schema"]["$ref"].rpartition("/")[2]])
    [(status, answer)] = [one for one in operation["responses"].items() if int(one[0]) in OK]
    returned = answer.get("content", {}).get(JSON, {}).get("schema")
    if returned is not None and "properties" in returned:
        yield f"Returns, with status {status}:"
        yield _keys(returned)
    elif returned is not None and "$ref" in returned:
        yield f"Returns, with status {status}: {_kind(returned)}."


def _keys(schema: Schema) -> str:
    is_body = schema.get("title", "").endswith("Body")
    required = schema.get("required", ())
    rows = (
        [_name(name, required=is_body and name in required), *_described(one, required=name in required or not is_body)]
        for name, one in schema.get("properties", {}).items()
    )
    return table(["key of the body" if is_body else "key", "value", "meaning"], rows)


def _name(name: str, *, required: bool) -> str:
    return f"`{name}`, required" if required else f"`{name}`"


def _described(schema: Schema, *, required: bool) -> tuple[str, str]:
    """Return what a value may be, and what it means; a value that may be left out is not called null."""
    kinds = [one for one in schema.get("anyOf", [schema]) if required or one.get("type") != "null"]
    meaning = schema.get("description") or next((one["description"] for one in kinds if "description" in one), "")
    if (default := schema.get("default")) not in (None, False) and "default" not in meaning.lower():
        meaning += f" Default: {default}."
    return " or ".join(dict.fromkeys(map(_kind, kinds))), text(meaning)


def _kind(schema: Schema) -> str:
    match schema:
        case {"$ref": place}:
            name = place.rpartition("/")[2]
            found = f"[{name}](#{slug(name)})"
        case {"enum": values}:
            found = ", ".join(f"`{one}`" for one in values)
        case {"const": value}:
            found = f"`{value}`"
        case {"anyOf": kinds}:
            found = " or ".join(dict.fromkeys(map(_kind, kinds)))
        case {"type": "array"}:
            limit = f", at most {schema['maxItems']:,}" if "maxItems" in schema else ""
            found = f"list of {_kind(schema.get('items', {}))}{limit}"
        case {"type": "object", "additionalProperties": {} as values} if values:
            found = f"object of {_kind(values)}"
        case {"type": "integer" | "number" as kind, "minimum": minimum, "maximum": maximum}:
            found = f"{KINDS[kind]}, {minimum:,g} to {maximum:,g}"
        case {"type": kind}:
            found = KINDS[kind]
        case _:
            found = "any"
    return found
