"""HTML to Markdown: headings, paragraphs, lists, tables and code; the rest is its text, without menus and sidebars."""

from __future__ import annotations

from html.entities import html5
from typing import NamedTuple

from semlex import _core
from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadOptions
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
