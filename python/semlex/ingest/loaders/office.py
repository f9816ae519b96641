"""Read PDF, office documents, e-books and e-mails as Markdown, with kreuzberg in a separate process (`worker`)."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadError, LoadOptions, Record
from semlex.ingest.loaders.markdown import html_to_markdown
from semlex.ingest.loaders.worker import WORKER
from semlex.types.documents import StoredPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from email.message import EmailMessage

PACKAGE = "kreuzberg"
EXTRA = "files"
_SHOWN = ("From", "To", "Cc", "Date")
_OPEN_XML_NAMES = "http://schemas.openxmlformats.org"
_OPEN_XML = "application/vnd.openxmlformats-officedocument."
# What kreuzberg calls each format; a format's name is its suffix.
MEDIA_TYPES = {
    "pdf": "application/pdf",
    "docx": f"{_OPEN_XML}wordprocessingml.document",
    "pptx": f"{_OPEN_XML}presentationml.presentation",
    "xlsx": f"{_OPEN_XML}spreadsheetml.sheet",
    "epub": "application/epub+zip",
    "odt": "application/vnd.oasis.opendocument.text",
    "rtf": "application/rtf",
    "eml": "message/rfc822",
    "msg": "application/vnd.ms-outlook",
}
_SHEETS = f"{{{_OPEN_XML_NAMES}/spreadsheetml/2006/main}}"
_RELATED = f"{{{_OPEN_XML_NAMES}/officeDocument/2006/relationships}}"
_RELATIONS = "xl/_rels/workbook.xml.rels"
_MARK = re.compile("\x02\\s*")
_SPLIT_WORD = re.compile("(?<![\\w-])[\\w-]++(?:\x02\\s*+[\\w-]++)+")
_WORD = re.compile(r"\w+(?:-\w+)*")
# Of XML: a missing part or attribute, an unknown or unsupported encoding, a wrong number, bad syntax.
_UNREADABLE = (LookupError, ValueError, ET.ParseError)
# Minimum letters of half a word that is also a word.
MIN_HALF = 3
# All but tab and line feed; pdfium has two marks for a hyphen at the end of a line.
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\ufffe\uffff]")
# Of these kreuzberg silently leaves out a part that it cannot unpack: a chapter, a sheet.
LOSE_PARTS = ("epub", "xlsx")
# A larger part may fail for lack of memory; see `semlex.ingest.loaders.worker.MAX_MEMORY`.
MAX_PART_BYTES = 512 * 1024**2


@dataclass(frozen=True)
class OfficeLoader:
    """Reads files of one format in the worker process."""

    name: str
    version = 2

    @cached_property
    def suffixes(self) -> Sequence[str]:
        """The suffix of the format."""
        return (self.name,)

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:  # noqa: ARG002 - the same for every loader
        """Return the text of a file."""
        return WORKER.read(self.name, file.data)


@dataclass(frozen=True)
class MissingOfficeLoader(OfficeLoader):
    """Replaces a loader whose package is not installed."""

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:  # noqa: ARG002 - the same for every loader
        """Raise an error that names the extra to install."""
        raise LoadError("no_reader", f'files of the format {self.name} need an extra: pip install "semlex[{EXTRA}]"')


def read(name: str, data: bytes) -> LoadedDocument:
    """Return the text of a file; called in the worker process."""
    import kreuzberg  # noqa: PLC0415 - of an extra, and for the worker only

    if name == "eml":
        return read_mail(data)
    if name in LOSE_PARTS and zipfile.is_zipfile(io.BytesIO(data)):
        _check_parts(name, data)
    config = kreuzberg.ExtractionConfig(
        use_cache=False,
        enable_quality_processing=False,
        postprocessor=kreuzberg.PostProcessorConfig(enabled=False),
        concurrency=kreuzberg.ConcurrencyConfig(max_threads=1),
        pages=kreuzberg.PageConfig(extract_pages=name == "pdf"),
        output_format="markdown",
        include_document_structure=True,
    )
    try:
        found = kreuzberg.extract_bytes_sync(data, MEDIA_TYPES[name], config)
    except kreuzberg.KreuzbergError as error:
        said = str(error).lower()
        if "password" in said or "encrypt" in said:
            raise LoadError("encrypted", "it is encrypted: store it without a password") from None
        if any(word in said for word in ("limit", "too large", "exceed", "zip bomb", "ratio")):
            raise _too_big() from None
        raise _damaged(name) from None
    last_page = len(found.pages or ()) if name == "pdf" else 0
    first_rows = first_rows_of(data) if name == "xlsx" else None
    return _document(found.document or {}, found.content, found.metadata, last_page, first_rows)


def _check_parts(name: str, data: bytes) -> None:
    """Unpack every part of a file once; raise `LoadError` if a part is damaged or too large."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if any(part.file_size > MAX_PART_BYTES for part in archive.infolist()):
                raise _too_big()
            if archive.testzip() is not None or (name == "epub" and _lacks_chapters(archive)):
                raise _damaged(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError):
        raise _damaged(name) from None


def _lacks_chapters(book: zipfile.ZipFile) -> bool:
    """Return whether a book's reading order names a file that the book does not contain."""
    try:
        container = ET.fromstring(book.read("META-INF/container.xml"))  # noqa: S314 - parts have a longest length
        place = next(container.iterfind(".//{*}rootfile")).attrib["full-path"]
        package = ET.fromstring(book.read(place))  # noqa: S314
    except (StopIteration, *_UNREADABLE):
        return False  # it is the reader that refuses such a book
    files = {item.get("id"): item.get("href", "") for item in package.iterfind("{*}manifest/{*}item")}
    named = (files.get(item.get("idref")) for item in package.iterfind("{*}spine/{*}itemref"))
    paths = {posixpath.normpath(posixpath.join(posixpath.dirname(place), unquote(href))) for href in named if href}
    return not paths <= set(book.namelist())


def _too_big() -> LoadError:
    return LoadError("too_big", "its unpacked content is too large for a document: split it")


def _damaged(name: str) -> LoadError:
    return LoadError("parser_failed", f"it is damaged, or not a {name} file: open it and save it again")


def _document(
    structure: Mapping[str, Any],
    content: str,
    known: Mapping[str, Any],
    last_page: int,
    first_rows: Mapping[str, int] | None,
) -> LoadedDocument:
    """Join the blocks of a document into one text, and note where its pages, or its sheets and their rows, begin."""
    nodes: Sequence[Mapping[str, Any]] = structure.get("nodes") or []
    join_words = word_joiner([found for node in nodes for found in _texts(node["content"])])
    pages: list[int] = []
    sheets: list[Record] = []
    blocks: list[str] = []
    length = 0
    for node in nodes:
        block = _clean(join_words(_block(node["content"])))
        if not block:
            continue
        separator = "\n\n" if blocks else ""
        page = min(node.get("page") or 0, last_page)
        if page > len(pages):  # a page without text begins where the next one does
            pages += [length + len(separator)] * (page - len(pages))
        start, length = length + len(separator), length + len(separator) + len(block)
        blocks.append(separator + block)
        if first_rows is not None:
            _add_block(sheets, node["content"], block, start, first_rows)
    text = "".join(blocks)
    if not text:
        text = _clean(join_words(content))
    pages += [len(text)] * (last_page - len(pages))
    authors = [_clean(author) for author in known.get("authors") or () if isinstance(author, str)]
    title = known.get("title") or known.get("subject")
    return LoadedDocument(
        text,
        "markdown",
        (" ".join(_clean(title).split()) or None) if isinstance(title, str) else None,
        {"authors": authors} if authors else {},
        pages=pages,
        records=sheets,
        has_lines=False,
    )


def _add_block(
    sheets: list[Record], content: Mapping[str, Any], block: str, start: int, first_rows: Mapping[str, int]
) -> None:
    """Add a block of a sheet: a heading begins a sheet, and each line of a table except the second is a row."""
    if content["node_type"] in ("heading", "title") or not sheets:
        name = " ".join((content.get("text") or "").split())
        sheets.append(Record(start, start + len(block), place=StoredPlace(sheet=name or None)))
    else:
        sheets[-1] = replace(sheets[-1], end=start + len(block))
    sheet = sheets[-1]
    first = first_rows.get(sheet.place.sheet or "")
    if content["node_type"] == "table" and first is not None and sheet.place.row is None:
        ends = [start + found.end() for found in re.finditer("\n", block)]
        sheets[-1] = replace(sheet, place=sheet.place._replace(row=first, breaks=ends[1:]))


def first_rows_of(data: bytes) -> dict[str, int]:
    """Return for each sheet of a workbook, by name, the number of the first row that has a value."""
    rows: dict[str, int] = {}
    with suppress(*_UNREADABLE), zipfile.ZipFile(io.BytesIO(data)) as book:
        # Python's expat bounds what entities become, and this process has little memory.
        relations, sheets = (ET.fromstring(book.read(name)) for name in (_RELATIONS, "xl/workbook.xml"))  # noqa: S314
        parts = {one.get("Id"): one.get("Target", "") for one in relations}
        for sheet in sheets.iter(f"{_SHEETS}sheet"):
            target = parts.get(sheet.get(f"{_RELATED}id")) or ""
            path = target.removeprefix("/") if target.startswith("/") else f"xl/{target}"
            with suppress(*_UNREADABLE), book.open(path) as part:
                if (row := _first_row(part)) is not None:
                    rows[" ".join(sheet.get("name", "").split())] = row
    return rows


def _first_row(part: IO[bytes]) -> int | None:
    """Return the number of the first row with a value, or None."""
    number = 0
    for event, element in ET.iterparse(part, ("start", "end")):  # noqa: S314
        if event == "start" and element.tag == f"{_SHEETS}row":
            number = int(element.get("r") or number + 1)
        elif event == "end" and element.tag in (f"{_SHEETS}v", f"{_SHEETS}is"):
            return number
    return None


def _block(content: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one return per kind of block
    kind, text = content["node_type"], (content.get("text") or "").strip("\r\n")
    match kind:
        case "heading" | "title":
            return f"{'#' * content.get('level', 1)} {' '.join(text.split())}" if text.strip() else ""
        case "list_item":
            lines = text.strip().splitlines()
            return "\n  ".join([f"- {lines[0]}", *lines[1:]]) if lines else ""
        case "table":
            return _table(content.get("grid") or {})
        case "code":
            fence = "```"
            while fence in text:
                fence += "`"
            return f"{fence}{content.get('language') or ''}\n{text}\n{fence}" if text.strip() else ""
        case "metadata_block":
            return "\n".join(f"{name}: {value}" for name, value in content.get("entries") or ())
        case "group" | "page_break" | "image" | "list" | "quote":  # they hold other nodes, or no text
            return ""
        case _:
            return _as_text(text)


def _table(grid: Mapping[str, Any]) -> str:
    """Return a table as Markdown lines; `grid` gives each cell with its row and column, and may lack cells."""
    rows: dict[int, dict[int, str]] = {}
    for cell in grid.get("cells") or ():
        rows.setdefault(cell["row"], {})[cell["col"]] = " ".join(cell["content"].replace("|", "\\|").split())
    if not any(text for row in rows.values() for text in row.values()):
        return ""
    lines = []
    for _, row in sorted(rows.items()):
        lines.append("| " + " | ".join(text for _, text in sorted(row.items())) + " |")
        if len(lines) == 1:
            lines.append("|" + " --- |" * len(row))
    return "\n".join(lines)


def _as_text(text: str) -> str:
    """Return a paragraph escaped so that Markdown does not take it for structure."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return "\n".join(f"\\{line}" if line.startswith(("#", "```", "~~~", "===", "---")) else line for line in lines)


def _texts(content: Mapping[str, Any]) -> Iterator[str]:
    yield content.get("text") or ""
    for cell in (content.get("grid") or {}).get("cells") or ():
        yield cell["content"]


def word_joiner(texts: Iterable[str]) -> Callable[[str], str]:
    """Return a function that joins words that a PDF splits at line ends; pdfium marks each split with U+0002."""
    texts = list(texts)
    if not any("\x02" in text for text in texts):
        return str
    words = {word for text in texts for word in _WORD.findall(_SPLIT_WORD.sub(" ", text).lower())}

    def joined(found: re.Match[str]) -> str:
        word, *others = _MARK.split(found[0])  # a word may be on three lines
        is_known = "".join((word, *others)).lower() in words
        for behind in others:
            word += ("-" if has_hyphen(word, behind, is_known) else "") + behind
        return word

    # pdfium gives the same mark for a hyphen that belongs to the word. The hyphen stays before a capital letter or a
    # digit (Springer-Verlag), and if the texts know the word with a hyphen, or both its halves, but not the joined
    # word.
    def has_hyphen(before: str, behind: str, is_known: bool) -> bool:
        first, second = before.lower().rpartition("-")[2], behind.lower().partition("-")[0]
        is_compound = f"{first}-{second}" in words or (
            {first, second} <= words and (min(len(first), len(second)) >= MIN_HALF or "-" in before + behind)
        )
        may_join = before[-1].isalpha() and behind[0].islower()
        return not may_join or (is_compound and not is_known and f"{first}{second}" not in words)

    return lambda text: _SPLIT_WORD.sub(joined, text)


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text).encode(errors="replace").decode()


def read_mail(data: bytes) -> LoadedDocument:
    """Return the text of an e-mail with its subject as title, without attachments."""
    # Python's parser keeps paragraphs, and finds the plain one of two forms of a text.
    from email import message_from_bytes, policy  # noqa: PLC0415 - most processes read none

    message = message_from_bytes(data, policy=policy.default)
    subject = " ".join(str(message.get("Subject", "")).split())
    head = "\n".join(f"{name}: {' '.join(str(message[name]).split())}" for name in _SHOWN if message.get(name))
    blocks = [block for block in (head, _body(message)) if block]
    text = _storable("\n\n".join(blocks).replace("\0", ""))
    sender = " ".join(str(message.get("From", "")).split())
    return LoadedDocument(text, "markdown", subject or None, {"authors": [sender]} if sender else {}, has_lines=False)


def _body(message: EmailMessage) -> str:
    part = message.get_body(preferencelist=("plain", "html"))
    if part is None:
        return ""
    content = part.get_content()
    if not isinstance(content, str):
        return ""
    if part.get_content_subtype() == "html":
        return html_to_markdown(_storable(content)).text
    return content.replace("\r\n", "\n").strip()


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()
