"""Read JSON: notebooks, JSON Lines, and chunks that another program made. Other JSON is read as source code."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from semlex.errors import ValidationError
from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadError, LoadOptions
from semlex.ingest.loaders.decoding import decode, repaired_document, storable
from semlex.ingest.loaders.markdown import CodeLoader, Heading, headings
from semlex.ingest.loaders.records import BLANK_LINE, RecordText, Rows, check_metadata, parse_json
from semlex.types.documents import ChunkMetadata, StoredPlace

MAX_OUTPUT_CHARACTERS = 2_000
# Outputs, which are mostly left out, may be nested deeper than metadata.
MAX_DEPTH = 200
PYTHON = "py"
# Suffixes of languages, for notebooks that do not name theirs.
SUFFIXES = {
    "bash": "sh",
    "c++": "cpp",
    "c#": "cs",
    "clojure": "clj",
    "go": "go",
    "haskell": "hs",
    "java": "java",
    "javascript": "js",
    "julia": "jl",
    "kotlin": "kt",
    "python": PYTHON,
    "r": "r",
    "ruby": "rb",
    "rust": "rs",
    "scala": "scala",
    "sql": "sql",
    "typescript": "ts",
}

_SUFFIX = re.compile(r"\.([a-z0-9]{1,16})", re.ASCII)
# Colours and other commands to a terminal.
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class NotebookLoader:
    """Reads Jupyter notebooks: each cell becomes records, with the Markdown headings above it."""

    # Text outputs are read, up to 2,000 characters each; images, tracebacks and widgets are left out. A character that
    # cannot be stored becomes U+FFFD.

    name = "notebook"
    suffixes = ("ipynb",)
    version = 2

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Return the text of a file."""
        text, encoding, repaired = decode(file.data, options)
        notebook = parse_json(text, max_depth=MAX_DEPTH)
        code = f"code:{_suffix(notebook)}"
        made = RecordText()
        above: list[Heading] = []
        title = None
        for number, cell in enumerate(_cells(notebook), 1):
            place = StoredPlace(cell=number)
            kind, source = _kind(cell), _source(cell)
            if kind == "markdown":
                for part, levels in _parts(source, above):
                    if part.strip():
                        titles = [heading.title for heading in levels]
                        made.add(part, structure="markdown", titles=titles, place=place)
                title = title or next((found.title for found in headings(source) if found.level == 1), None)
                continue
            outputs = _outputs(cell) if kind == "code" else iter(())
            texts = [one for one in (source, *outputs) if one.strip()]
            if texts:
                titles = [heading.title for heading in above]
                structure = code if kind == "code" else "plain"
                made.add(BLANK_LINE.join(texts), structure=structure, titles=titles, place=place)
        return repaired_document(made.document(title, "markdown", encoding=encoding, repaired=repaired))


def _cells(notebook: object) -> Iterator[Mapping[str, Any]]:
    """Yield the cells of a notebook of format 4, or those of all worksheets of format 3."""
    cells: Any = None
    if isinstance(notebook, dict):
        cells = notebook.get("cells")
        sheets = notebook.get("worksheets")
        if cells is None and isinstance(sheets, list) and all(isinstance(sheet, dict) for sheet in sheets):
            found = [sheet.get("cells") for sheet in sheets]
            cells = [cell for some in found for cell in some] if all(isinstance(some, list) for some in found) else None
    if not isinstance(cells, list):
        raise LoadError("bad_notebook", "it has no list of cells: open it in Jupyter and save it")
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict):
            raise LoadError("bad_notebook", f"cell {number} is not an object: open it in Jupyter and save it")
        yield cell


def _kind(cell: Mapping[str, Any]) -> str:
    kind = cell.get("cell_type")
    return "markdown" if kind == "heading" else kind if kind in ("markdown", "code") else "raw"


def _source(cell: Mapping[str, Any]) -> str:
    source = _joined(cell.get("source", cell.get("input")))
    level = cell.get("level")
    if cell.get("cell_type") == "heading" and isinstance(level, int) and 1 <= level <= 6:  # noqa: PLR2004 - levels of HTML
        return f"{'#' * level} {' '.join(source.split())}"
    return source


def _outputs(cell: Mapping[str, Any]) -> Iterator[str]:
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        # Errors of both formats have only a traceback.
        if isinstance(output, dict) and output.get("output_type") not in ("error", "pyerr"):
            data = output.get("data")
            text = data.get("text/plain") if isinstance(data, dict) else output.get("text")
            yield _TERMINAL.sub("", _joined(text, MAX_OUTPUT_CHARACTERS))


def _joined(text: object, limit: int | None = None) -> str:
    lines = text if isinstance(text, list) else [text]
    return "".join(line for line in lines if isinstance(line, str))[:limit]


def _parts(source: str, above: list[Heading]) -> Iterator[tuple[str, list[Heading]]]:
    """Yield the text of a Markdown cell in parts, each with the headings of earlier cells that are above it."""
    start, outer = 0, list(above)
    for heading in headings(source):
        while above and above[-1].level >= heading.level:
            above.pop()
        above.append(heading)
        kept = [one for one in outer if one.level < heading.level]
        if len(kept) < len(outer):
            yield source[start : heading.start], outer
            start, outer = heading.start, kept
    yield source[start:], outer


def _suffix(notebook: object) -> str:
    """Return the file suffix of a notebook's language."""
    metadata = _field(notebook, "metadata")
    info, kernel = _field(metadata, "language_info"), _field(metadata, "kernelspec")
    if suffix := _SUFFIX.fullmatch(str(info.get("file_extension")).lower()):
        return suffix[1]
    names = (str(name).lower() for name in (info.get("name"), kernel.get("language")))
    return next((SUFFIXES[name] for name in names if name in SUFFIXES), PYTHON)


def _field(value: object, name: str) -> dict[str, Any]:
    """Return an object in a field of another one; empty if either is not an object."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


class JsonLinesLoader:
    """Reads JSON Lines: each object is a record."""

    name = "json lines"
    suffixes = ("jsonl", "ndjson")
    version = 2
    reads_fields = True

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Return the text of a file; blank lines and objects without text are left out."""
        # Without `LoadOptions.text_fields` all texts of an object are its record's text.
        text, encoding, repaired = decode(file.data, options)
        rows = Rows(options)
        known: dict[str, None] = {}
        # Only \n ends a line: JSON texts may contain the other line breaks.
        for number, line in enumerate(io.StringIO(text), 1):
            if not line.strip():
                continue
            value = parse_json(line, line=number)
            if not isinstance(value, dict):
                raise LoadError("bad_row", f"line {number} is not a JSON object: write one object per line")
            if "\\u" in line:  # only escapes can make unstorable characters
                value, count = storable(value, f"line {number}", options)
                repaired += count
            known.update(dict.fromkeys(value))
            rows.add(value, number, number)
        if known:
            rows.check_fields(known)
        return rows.document(encoding, repaired)


LIST_NAME = "chunks"
SIGNS = ("chunk_text", "chunk_id")
# Characters searched for chunks in a file that is not valid JSON.
LOOKED_AT = 256 * 1024

_BEGINNING = re.compile(r'\s*+(?:\{[^\[]*?"chunks"\s*+:\s*+)?\[\s*+')


class PrechunkedLoader:
    """Reads JSON that holds finished chunks; other JSON is read as source code."""

    # Chunks are a list of objects with the fields of `ChunkMetadata`, or such a list named "chunks" in an object.

    name = "chunks"
    suffixes = ("json",)
    version = 2

    def __init__(self) -> None:
        self._code = CodeLoader()

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Return the chunks of a file as records; fields beside the list of chunks become metadata of the document."""
        text, encoding, repaired = decode(file.data, options)
        found = _chunks_of(text)
        if found is None:
            return replace(self._code.load(file, options), format=self._code.name)
        items, metadata = found
        beside, count = storable(metadata, "beside the chunks", options)
        repaired += count
        check_metadata(beside, "beside the chunks")
        made = RecordText()
        numbers: dict[str, int] = {}
        for number, item in enumerate(items, 1):
            stored, count = storable(item, f"chunk {number}", options)
            repaired += count
            chunk = _chunk(stored, number)
            first = numbers.setdefault(chunk.chunk_id, number)
            if first != number:
                raise LoadError("repeated_id", f"chunks {first} and {number} have the same chunk_id: give each its own")
            own = {name: getattr(chunk, name) for name in ("chunk_id", "source_document", "token_count")}
            check_metadata(own, f"chunk {number}")
            made.add(chunk.chunk_text, titles=chunk.heading_path, summary=chunk.summary, metadata=own, is_chunk=True)
        return made.document(metadata=beside, encoding=encoding, repaired=repaired)


def _chunks_of(text: str) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the chunks of a JSON text and the fields beside them, or None if the text holds no chunks."""
    if not all(f'"{sign}"' in text for sign in SIGNS):
        return None
    try:
        value = parse_json(text)
    except LoadError:
        if _begins_with_chunk(text[:LOOKED_AT]):
            raise
        return None
    metadata: dict[str, Any] = {}
    if isinstance(value, dict):
        metadata = {name: below for name, below in value.items() if name != LIST_NAME}
        value = value.get(LIST_NAME)
    return (value, metadata) if isinstance(value, list) and value and _is_chunk(value[0]) else None


def _begins_with_chunk(head: str) -> bool:
    found = _BEGINNING.match(head)
    if found is None:
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(head, found.end())
    except (ValueError, RecursionError):
        return False
    return _is_chunk(first)


def _is_chunk(value: object) -> bool:
    return isinstance(value, dict) and all(sign in value for sign in SIGNS)


def _chunk(item: object, number: int) -> ChunkMetadata:
    if not isinstance(item, dict):
        raise LoadError("bad_chunk", f"chunk {number} is not an object: give it the fields of the other chunks")
    try:
        return ChunkMetadata.from_dict(item)
    except ValidationError as error:
        raise LoadError("bad_chunk", f"chunk {number}: {error.errors[0]}") from None
