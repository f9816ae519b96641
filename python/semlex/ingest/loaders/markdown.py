"""Markdown, with its front matter and its headings."""

from __future__ import annotations

import re
from typing import NamedTuple

from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadOptions, Record
from semlex.ingest.loaders.decoding import decode
from semlex.ingest.loaders.front_matter import FrontMatter, read_front_matter

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
