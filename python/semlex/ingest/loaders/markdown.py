"""Read formats that are text: Markdown with its front matter, web pages, plain texts and source code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.entities import html5
from typing import TYPE_CHECKING, Any, NamedTuple

from semlex import _core
from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadOptions, Record
from semlex.ingest.loaders.decoding import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

_READER = _core.HtmlReader(html5)


class MarkdownText(NamedTuple):
    """The Markdown that `html_to_markdown` makes of a web page, with the page's title."""

    text: str
    title: str | None


def html_to_markdown(html: str) -> MarkdownText:
    """Turn HTML into Markdown with the page's headings, without scripts, styles, templates and navigation."""
    # Malformed HTML is read roughly as browsers do, in time proportional to its length.
    return MarkdownText(*_READER.to_markdown(html))


class HtmlLoader:
    """Reads web pages as Markdown."""

    name = "html"
    suffixes = ("html", "htm", "xhtml")
    version = 3

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Return the text of a file."""
        page, encoding, repaired = decode(file.data, options)
        text, title = html_to_markdown(page)
        return LoadedDocument(text, "markdown", title, encoding=encoding, repaired=repaired, has_lines=False)


_CODE = (
    "bash c cc cpp cs css dart erl ex exs fs go graphql h hpp hs java jl js jsx kt kts lisp lua m ml mm nim php "
    "pl pm proto ps1 py pyi r rb rs scala sh sol sql swift tcl tf toml ts tsx v vb vue xml yaml yml zig zsh makefile "
    "dockerfile"
)


class TextLoader:
    """Reads plain texts, whose headings and lists are often marked as in reStructuredText."""

    name = "text"
    suffixes: tuple[str, ...] = ("txt", "text", "adoc", "asciidoc", "org", "tex", "srt", "vtt", "readme", "changelog")
    version = 1

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Return the text of a file."""
        text, encoding, repaired = decode(file.data, options)
        return LoadedDocument(text, "restructuredtext", encoding=encoding, repaired=repaired)


class RestructuredTextLoader(TextLoader):
    """Reads reStructuredText."""

    name = "restructuredtext"
    suffixes = ("rst", "rest")


class CodeLoader:
    """Reads source code."""

    name = "code"
    suffixes = tuple(_CODE.split())
    version = 1

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Return the text of a file, with its path above every chunk."""
        text, encoding, repaired = decode(file.data, options)
        return LoadedDocument(text, f"code:{file.suffix}", file.uri, encoding=encoding, repaired=repaired)


TITLE_WITHIN = 64 * 1024  # characters; titles further down are ignored
MAX_TITLE_CHARACTERS = 256  # as for headings in Rust: they are stored with each chunk below


class MarkdownLoader:
    """Reads Markdown."""

    name = "markdown"
    suffixes = ("md", "markdown", "mdx", "mdown")
    version = 3

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Return the text of a file; simple values of its front matter become metadata."""
        text, encoding, repaired = decode(file.data, options)
        head = text[:TITLE_WITHIN]
        front = read_front_matter(head)
        title = front.title or _first_heading(head[front.end :])
        body = (Record(front.end, len(text)),) if front.has_keys else ()
        return LoadedDocument(
            text, "markdown", title, front.metadata, records=body, encoding=encoding, repaired=repaired
        )


class Heading(NamedTuple):
    """A heading of Markdown; `start` is the first character of its line."""

    start: int
    level: int
    title: str


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]")
_UNDERLINE = re.compile(r" {0,3}=+[ \t]*")


def headings(text: str) -> list[Heading]:
    """Return the headings marked with ``#`` outside code."""
    found = []
    start = 0
    for line in _lines(text):
        level, title = _heading(line)
        found += [Heading(start, level, title[:MAX_TITLE_CHARACTERS])] if title else []
        start += len(line)
    return found


def _first_heading(head: str) -> str | None:
    """Return the first heading of level 1 outside code."""
    before = ""
    for line in _lines(head):
        level, title = _heading(line)
        if title and level == 1:
            return title
        if before and _UNDERLINE.fullmatch(line.rstrip()):
            return before
        before = line.strip()
    return None


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text; in code blocks, each character becomes a blank."""
    fence = ""
    for line in text.splitlines(keepends=True):
        opened = None if fence else _FENCE.match(line)
        yield " " * len(line) if fence or opened else line
        if opened:
            fence = opened[1]
        elif fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""


def _heading(line: str) -> tuple[int, str]:
    """Return the level and the title of a heading marked with ``#``; the title of any other line is empty."""
    marks = _HEADING.match(line)
    if marks is None:
        return 0, ""
    title = line[marks.end() :].strip()
    shorter = title.rstrip("#")
    return len(marks[1]), shorter.rstrip() if not shorter or shorter[-1] in " \t" else title


MAX_KEYS = 100
MAX_VALUE_CHARACTERS = 10_000

# With a blank second line the first one is a rule.
_FENCED = re.compile(r"\A---[ \t]*\r?\n(?![ \t]*\r?\n)(.*?\n)(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_KEY = re.compile(r"(?P<key>[^\W\d][\w.-]{0,99})[ \t]*:(?:[ \t]+(?P<value>.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
# Up to 15 digits are the same number everywhere; a number that begins with 0 is a code, and stays a text.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d{0,14})", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9]\d{0,14})\.\d{1,15}", re.ASCII)
# Quoted texts, with an optional comment.
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\["\\/])*+)"|'((?:[^']|'')*+)')(?:[ \t]+\#.*)?""")
_ESCAPE = re.compile(r'\\(["\\/])')
_COMMENT = re.compile(r"(?:\A|[ \t])#.*")
_PART = re.compile(r"""[ \t]*("(?:[^"\\]|\\.)*+"|'(?:[^']|'')*+'|[^,"'\[\]{}][^,\[\]{}]*+)[ \t]*(?:,|\Z)""")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
# YAML that is not simple begins with these: blocks, references, tags.
_NOT_SIMPLE = tuple("|>&*!{}[]%@`\"'")
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The metadata above a Markdown text, and the character at which the text begins."""

    end: int = 0
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    has_keys: bool = False


def read_front_matter(text: str) -> FrontMatter:
    """Read the front matter of a text: the simple part of YAML."""
    # It reads lines `key: value` at the margin: texts, numbers, true, false, null, and flat lists ([a, b], or lines
    # `- a` below the key). Dates stay texts. The first of two equal keys counts. Other YAML is skipped without an
    # error: nested blocks, texts of several lines, anchors, tags, values above 10,000 characters, and keys after the
    # hundredth.
    fenced = _FENCED.match(text)
    if fenced is None:
        return FrontMatter()
    title = None
    metadata: dict[str, Any] = {}
    entries = _entries(fenced[1])
    for key, lines in entries:
        if key == "title" and title is None and len(lines) == 1:
            title = _title_of(lines[0])
        elif key != "title" and key not in metadata and (value := _value(lines)) is not _NOTHING:
            metadata[key] = value
    return FrontMatter(fenced.end(), title, metadata, has_keys=bool(entries))


def _entries(block: str) -> list[tuple[str, list[str]]]:
    """Return the top-level keys of a block, each with its value and the lines below it."""
    entries: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if found := _KEY.fullmatch(line):
            if len(entries) == MAX_KEYS:
                break
            entries.append((found["key"], [(found["value"] or "").strip()]))
        elif entries:
            entries[-1][1].append(line)
    return entries


def _value(lines: list[str]) -> Any:
    """Return the value of a key: a scalar or a list of scalars; `_NOTHING` for any other value."""
    first, below = lines[0], lines[1:]
    if sum(map(len, lines)) > MAX_VALUE_CHARACTERS:
        return _NOTHING
    if not below:
        return _flat_list(first) if first.startswith("[") else _scalar(first)
    items = [_ITEM.fullmatch(line) for line in below]
    if _COMMENT.sub("", first).strip() or None in items:
        return _NOTHING
    # An item that is itself `key: value` is the beginning of a nested block.
    values = [_NOTHING if _KEY.fullmatch(item[1]) else _scalar(item[1].strip()) for item in items if item]
    return _NOTHING if _NOTHING in values else values


def _scalar(text: str) -> Any:
    if found := _QUOTED.fullmatch(text):
        double, single = found.groups()
        return _ESCAPE.sub(r"\1", double) if double is not None else single.replace("''", "'")
    text = _COMMENT.sub("", text).strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return _NOTHING if text.startswith(_NOT_SIMPLE) else text


def _flat_list(text: str) -> Any:
    text = _COMMENT.sub("", text).strip() if "]" not in text else text[: text.rindex("]") + 1]
    inner = text[1:-1].strip()
    if not text.endswith("]"):
        return _NOTHING
    values: list[Any] = []
    at = 0
    while at < len(inner):
        part = _PART.match(inner, at)
        if part is None or (value := _scalar(part[1].strip())) is _NOTHING:
            return _NOTHING
        values.append(value)
        at = part.end()
    return values


def _title_of(text: str) -> str | None:
    """Return the title, given its value in the front matter; a number or date stays as it is written there."""
    value = _scalar(text) if len(text) <= MAX_VALUE_CHARACTERS else ""
    shown = value if isinstance(value, str) else text.strip("\"'")
    return shown.strip() or None
