"""Notebooks: the cells of a Jupyter notebook, each with the headings above it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadError, LoadOptions
from semlex.ingest.loaders.decoding import decode
from semlex.ingest.loaders.markdown import Heading, headings
from semlex.ingest.loaders.records.json_text import parse_json
from semlex.ingest.loaders.records.rows import BLANK_LINE, RecordText
from semlex.ingest.loaders.storable import repaired_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_OUTPUT_CHARACTERS = 2_000
# Outputs, which are left out for the most part, may be deeper than what is stored.
MAX_DEPTH = 200
PYTHON = "py"
# Suffixes of languages, for notebooks that name no suffix.
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
    """Reads Jupyter notebooks: every cell is a record, with the headings of the Markdown cells above it.

    Of outputs the texts are read, 2,000 characters of each; images, tracebacks and widgets are left out. A character
    that cannot be stored becomes ``\N{REPLACEMENT CHARACTER}``.
    """

    name = "notebook"
    suffixes = ("ipynb",)
    version = 1

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Makes text of a file."""
        text, encoding, repaired = decode(file.data, options)
        notebook = parse_json(text, max_depth=MAX_DEPTH)
        code = f"code:{_suffix(notebook)}"
        made = RecordText()
        above: list[Heading] = []
        title = None
        for number, cell in enumerate(_cells(notebook), 1):
            metadata = {"cell": number}
            kind, source = _kind(cell), _source(cell)
            if kind == "markdown":
                for part, levels in _parts(source, above):
                    if part.strip():
                        titles = [heading.title for heading in levels]
                        made.add(part, structure="markdown", titles=titles, metadata=metadata)
                title = title or next((found.title for found in headings(source) if found.level == 1), None)
                continue
            outputs = _outputs(cell) if kind == "code" else iter(())
            texts = [one for one in (source, *outputs) if one.strip()]
            if texts:
                titles = [heading.title for heading in above]
                structure = code if kind == "code" else "plain"
                made.add(BLANK_LINE.join(texts), structure=structure, titles=titles, metadata=metadata)
        return repaired_document(
            LoadedDocument(made.text, "markdown", title, records=made.records, encoding=encoding, repaired=repaired)
        )


def _cells(notebook: object) -> Iterator[Mapping[str, Any]]:
    """The cells of format 4, or of the sheets of format 3."""
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
            raise LoadError("bad_notebook", f"cell {number} is no object: open it in Jupyter and save it")
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
    """The texts that a cell has put out."""
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        # The errors of both formats have no text but their traceback, which is called otherwise.
        if isinstance(output, dict) and output.get("output_type") not in ("error", "pyerr"):
            data = output.get("data")
            text = data.get("text/plain") if isinstance(data, dict) else output.get("text")
            yield _TERMINAL.sub("", _joined(text, MAX_OUTPUT_CHARACTERS))


def _joined(text: object, limit: int | None = None) -> str:
    """A text, or a list of its lines, as one."""
    lines = text if isinstance(text, list) else [text]
    return "".join(line for line in lines if isinstance(line, str))[:limit]


def _parts(source: str, above: list[Heading]) -> Iterator[tuple[str, list[Heading]]]:
    """The text of a Markdown cell, cut where a heading ends what stood above the cell."""
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
    """The suffix of the files of the language that a notebook is written in."""
    metadata = notebook.get("metadata") if isinstance(notebook, dict) else None
    found = {name: metadata.get(name) for name in ("language_info", "kernelspec")} if isinstance(metadata, dict) else {}
    info, kernel = (
        {} if not isinstance(one, dict) else one for one in (found.get("language_info"), found.get("kernelspec"))
    )
    if suffix := _SUFFIX.fullmatch(str(info.get("file_extension")).lower()):
        return suffix[1]
    names = (str(name).lower() for name in (info.get("name"), kernel.get("language")))
    return next((SUFFIXES[name] for name in names if name in SUFFIXES), PYTHON)
