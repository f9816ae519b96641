"""Markdown, with the title of its front matter."""

from __future__ import annotations

import re

from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadOptions
from semlex.ingest.loaders.decoding import decode

TITLE_WITHIN = 64 * 1024  # characters; a title further down is none


class MarkdownLoader:
    """Reads Markdown."""

    name = "markdown"
    suffixes = ("md", "markdown", "mdx", "mdown")
    version = 1

    def load(self, file: FileBytes, options: LoadOptions) -> LoadedDocument:
        """Makes text of a file."""
        text, encoding = decode(file.data, options)
        return LoadedDocument(text, "markdown", markdown_title(text), encoding=encoding)


_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#[ \t]")
_UNDERLINE = re.compile(r" {0,3}=+[ \t]*")


def markdown_title(text: str) -> str | None:
    """The title of a Markdown text: that of its front matter, else its first heading of level 1 outside code."""
    head = text[:TITLE_WITHIN]
    if front := _FRONT_MATTER.match(head):
        for line in front.group(1).splitlines():
            if line.startswith("title:") and (title := line.removeprefix("title:").strip().strip("\"'").strip()):
                return title
        head = head[front.end() :]
    return _first_heading(head)


def _first_heading(head: str) -> str | None:
    fence = before = ""
    for line in head.splitlines():
        if fence:
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
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


def _without_closing_marks(heading: str) -> str:
    shorter = heading.rstrip("#")
    return shorter.rstrip() if not shorter or shorter[-1] in " \t" else heading
