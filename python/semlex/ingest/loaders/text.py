"""Texts as they are: plain ones, reStructuredText, and source code."""

from __future__ import annotations

from semlex.ingest.loaders.base import FileBytes, LoadedDocument, LoadOptions
from semlex.ingest.loaders.decoding import decode

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
