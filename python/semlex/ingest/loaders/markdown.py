"""Markdown, with its front matter and its headings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.entities import html5
from typing import Any, NamedTuple

from semlex import _core
from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadOptions, Record
from semlex.ingest.loaders.decoding import decode

_READER = _core.HtmlReader(html5)


class MarkdownText(NamedTuple):
    """What `html_to_markdown` makes.

    Attributes:
        text: Markdown, its blocks separated by blank lines.
        title: The content of ``<title>``, else of the first ``<h1>``, else None.
    """

    text: str
    title: str | None


def html_to_markdown(html: str) -> MarkdownText:
    """Turns HTML into Markdown whose headings are those of the page.

    Scripts, styles and templates are dropped, and what surrounds the text where there is other text. Malformed HTML is
    read as browsers read it, more or less. The time is proportional to the length.
    """
    return MarkdownText(*_READER.to_markdown(html))


class HtmlLoader:
    """Reads web pages as Markdown."""

    name = "html"
    suffixes = ("html", "htm", "xhtml")
    version = 2

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Makes text of a file."""
        page, encoding, repaired = decode(file.data, options)
        text, title = html_to_markdown(page)
        return LoadedDocument(text, "markdown", title, encoding=encoding, repaired=repaired)


_CODE = (
    "bash c cc cpp cs css dart erl ex exs fs go graphql h hpp hs java jl js jsx kt kts lisp lua m ml mm nim php "
    "pl pm proto ps1 py pyi r rb rs scala sh sol sql swift tcl tf toml ts tsx v vb vue xml yaml yml zig zsh makefile "
    "dockerfile"
)


class TextLoader:
    """Reads plain texts, whose headings and lists are often marked as those of reStructuredText."""

    name = "text"
    suffixes: tuple[str, ...] = ("txt", "text", "adoc", "asciidoc", "org", "tex", "srt", "vtt", "readme", "changelog")
    version = 1

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Makes text of a file."""
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
        """Makes text of a file; its path stands above every chunk of it."""
        text, encoding, repaired = decode(file.data, options)
        return LoadedDocument(text, f"code:{file.suffix}", file.uri, encoding=encoding, repaired=repaired)


TITLE_WITHIN = 64 * 1024  # characters; a title further down is none
MAX_TITLE_CHARACTERS = 256  # as of the headings that are found in Rust: they are stored with each chunk below


class MarkdownLoader:
    """Reads Markdown."""

    name = "markdown"
    suffixes = ("md", "markdown", "mdx", "mdown")
    version = 2

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Makes text of a file. Simple values of its front matter become metadata; the front matter is no chunk."""
        text, encoding, repaired = decode(file.data, options)
        front = read_front_matter(text[:TITLE_WITHIN])
        title = _title(text[:TITLE_WITHIN], front)
        says = front.title is not None or front.metadata
        body = (Record(front.end, len(text)),) if says and text[front.end :].strip() else ()
        return LoadedDocument(
            text, "markdown", title, front.metadata, records=body, encoding=encoding, repaired=repaired
        )


class Heading(NamedTuple):
    """A heading of Markdown.

    Attributes:
        start: Where its line begins, in characters.
        level: From 1 to 6.
        title: Without its marks; its beginning, where it is long.
    """

    start: int
    level: int
    title: str


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#[ \t]")
_HEADINGS = re.compile(r" {0,3}(#{1,6})[ \t]")
_UNDERLINE = re.compile(r" {0,3}=+[ \t]*")


def markdown_title(text: str) -> str | None:
    """The title of a Markdown text: that of its front matter, else its first heading of level 1 outside code."""
    head = text[:TITLE_WITHIN]
    return _title(head, read_front_matter(head))


def _title(head: str, front: FrontMatter) -> str | None:
    return front.title or _first_heading(head[front.end :])


def headings(text: str) -> list[Heading]:
    """The headings with a ``#`` and a title that stand outside code, in their order."""
    found = []
    fence, start = "", 0
    for line in text.splitlines(keepends=True):
        if fence:
            if _closes(line, fence):
                fence = ""
        elif opened := _FENCE.match(line):
            fence = opened.group(1)
        elif marks := _HEADINGS.match(line):
            title = _without_closing_marks(line[marks.end() :].strip())
            found += [Heading(start, len(marks[1]), title[:MAX_TITLE_CHARACTERS])] if title else []
        start += len(line)
    return found


def _first_heading(head: str) -> str | None:
    fence = before = ""
    for line in head.splitlines():
        if fence:
            if _closes(line, fence):
                fence = ""
            continue
        if opened := _FENCE.match(line):
            fence = opened.group(1)
        elif _HEADING.match(line):
            if title := _without_closing_marks(line.strip()[1:].strip()):
                return title
        elif before and _UNDERLINE.fullmatch(line):
            return before
        before = line.strip()
    return None


def _closes(line: str, fence: str) -> bool:
    return line.strip().startswith(fence) and not line.strip().strip(fence[0])


def _without_closing_marks(heading: str) -> str:
    shorter = heading.rstrip("#")
    return shorter.rstrip() if not shorter or shorter[-1] in " \t" else heading


MAX_KEYS = 100
MAX_VALUE_CHARACTERS = 10_000

# A blank second line makes the first one a rule.
_FENCED = re.compile(r"\A---[ \t]*\r?\n(?![ \t]*\r?\n)(.*?\n)(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_KEY = re.compile(r"(?P<key>[^\W\d][\w.-]{0,99})[ \t]*:(?:[ \t]+(?P<value>.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
# Up to 15 digits are the same number everywhere; a number that begins with 0 is a code, and stays a text.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d{0,14})", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9]\d{0,14})\.\d{1,15}", re.ASCII)
# Quoted texts, each with a comment behind it.
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\["\\/])*+)"|'((?:[^']|'')*+)')(?:[ \t]+\#.*)?""")
_ESCAPE = re.compile(r'\\(["\\/])')
_COMMENT = re.compile(r"(?:\A|[ \t])#.*")
_PART = re.compile(r"""[ \t]*("(?:[^"\\]|\\.)*+"|'(?:[^']|'')*+'|[^,"'\[\]{}][^,\[\]{}]*+)[ \t]*(?:,|\Z)""")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
# What begins with these is YAML that is not simple: blocks, references, tags.
_NOT_SIMPLE = tuple("|>&*!{}[]%@`\"'")
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What a text says of itself before it begins.

    Attributes:
        end: Where the text begins, in characters; 0 where there is no front matter.
        title: The value of ``title``, or None.
        metadata: The other values that are simple.
    """

    end: int = 0
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def read_front_matter(text: str) -> FrontMatter:
    """Reads the front matter of a text.

    Read are lines ``key: value`` that begin at the margin, with texts (quoted or not), numbers, ``true``, ``false`` and
    ``null``, and flat lists: ``[a, b]``, or lines ``- a`` below the key. Dates stay texts. Of a key that comes
    twice the first one counts. Left out, without failing, are keys with a nested block, a text of several lines, an
    anchor or a tag; values above 10,000 characters, and what follows the hundredth key.
    """
    fenced = _FENCED.match(text)
    if fenced is None:
        return FrontMatter()
    title = None
    metadata: dict[str, Any] = {}
    for key, lines in _entries(fenced[1]):
        if key == "title" and title is None and len(lines) == 1:
            title = _title_of(lines[0])
        elif key != "title" and key not in metadata and (value := _value(lines)) is not _NOTHING:
            metadata[key] = value
    return FrontMatter(fenced.end(), title, metadata)


def _entries(block: str) -> list[tuple[str, list[str]]]:
    """The keys at the margin, each with its value and the lines below it."""
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
    """The value of a key, or `_NOTHING` where it is not simple."""
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
        value = _NOTHING if part is None else _scalar(part[1].strip())
        if part is None or value is _NOTHING:
            return _NOTHING
        values.append(value)
        at = part.end()
    return values


def _title_of(text: str) -> str | None:
    """The title, whatever its kind: a year is one."""
    value = _scalar(text) if len(text) <= MAX_VALUE_CHARACTERS else ""
    shown = value if isinstance(value, str) else text.strip("\"'")
    return shown.strip() or None
