"""Reads files as text.

Every file that is not read is reported as a value, never raised: one bad file does not stop the run.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from semlex.ingest.files.discovery import (
    MAX_FILE_BYTES,
    FileProblem,
    Format,
    FoundFile,
    file_format,
    find_files,
    problem,
    too_large,
)
from semlex.ingest.files.safe_open import open_file
from semlex.ingest.loaders.html import html_to_markdown

__all__ = [
    "LOADER_VERSION",
    "MAX_FILE_BYTES",
    "FileBytes",
    "FileProblem",
    "Format",
    "FoundFile",
    "LoadedText",
    "find_files",
    "load_file",
    "load_text",
    "read_file",
]

# Another way of making text of bytes needs another number: documents of an older one can be cut anew.
LOADER_VERSION = 1
MAX_TITLE_CHARACTERS = 500
TITLE_WITHIN = 64 * 1024  # characters; a title further down is none


@dataclass(frozen=True, slots=True)
class FileBytes:
    """What a file holds.

    Attributes:
        uri: As in `FoundFile`.
        data: Its bytes.
        content_hash: SHA-256 of them, 32 bytes.
        modified_at: When the file was last changed, in UTC.
    """

    uri: str
    data: bytes
    content_hash: bytes
    modified_at: datetime


@dataclass(frozen=True, slots=True)
class LoadedText:
    """The text of a file.

    Attributes:
        uri: As in `FoundFile`.
        text: As in the file, line ends included; for HTML its Markdown.
        title: From the front matter, the first heading or the HTML's head; None when it has none.
        content_hash: SHA-256 of the file's bytes, 32 bytes.
        size: Number of those bytes.
        modified_at: When the file was last changed, in UTC.
        format: What kind of text it is, by the file's name.
    """

    uri: str
    text: str
    title: str | None
    content_hash: bytes
    size: int
    modified_at: datetime
    format: Format


def read_file(found: FoundFile, *, max_bytes: int = MAX_FILE_BYTES) -> FileBytes | FileProblem:
    """Reads a file's bytes.

    Args:
        found: From `find_files`.
        max_bytes: A file that is larger by now is refused; never more than this is read.

    Returns:
        The bytes, or the problem with the file.
    """
    try:
        descriptor = open_file(found.root, found.location.split("/"))
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            before = os.fstat(descriptor)
            if before.st_size > max_bytes:
                return too_large(found.uri, before.st_size, max_bytes)
            data = _read_at_most(file.fileno(), max_bytes + 1)
    except OSError as error:
        return problem(found.uri, error)
    if len(data) > max_bytes:
        return too_large(found.uri, len(data), max_bytes)
    return FileBytes(found.uri, data, hashlib.sha256(data).digest(), _moment(before.st_mtime))


def load_text(file: FileBytes) -> LoadedText | FileProblem:
    """Bytes as text.

    UTF-8 (with or without a mark) and UTF-16 with a byte order mark are read; nothing is guessed, since a guess that
    fails is stored as nonsense that no one finds.

    Returns:
        The text, or the problem with it.
    """
    text = _decode(file.uri, file.data)
    if isinstance(text, FileProblem):
        return text
    kind = file_format(file.uri)
    title = None
    if kind == "html":
        text, title = html_to_markdown(text)
    elif kind == "markdown":
        title = markdown_title(text)
    if title is not None:
        title = title[:MAX_TITLE_CHARACTERS]
    return LoadedText(file.uri, text, title, file.content_hash, len(file.data), file.modified_at, kind)


def load_file(found: FoundFile, *, max_bytes: int = MAX_FILE_BYTES) -> LoadedText | FileProblem:
    """Reads a file as text: `read_file`, then `load_text`."""
    file = read_file(found, max_bytes=max_bytes)
    return file if isinstance(file, FileProblem) else load_text(file)


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


def _read_at_most(file: int, limit: int) -> bytes:
    pieces = []
    while limit > 0 and (piece := os.read(file, min(limit, 1 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _decode(uri: str, data: bytes) -> str | FileProblem:
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if not wide and (offset := data.find(b"\0")) >= 0:
        return FileProblem(uri, "binary", f"byte {offset} is NUL: no text file")
    try:
        text = data.decode("utf-16" if wide else "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if wide:
            return FileProblem(uri, "not_utf16", f"byte {error.start} ends the UTF-16 that its first two bytes promise")
        message = f"byte {error.start} is not UTF-8: convert the file (iconv -f WINDOWS-1252 -t UTF-8)"
        return FileProblem(uri, "not_utf8", message)
    if (offset := text.find("\0")) >= 0:
        return FileProblem(uri, "binary", f"character {offset} is NUL: no text file")
    return text


def _moment(seconds: float) -> datetime:
    # A damaged file system may hold any number; a datetime holds the years 1 to 9999.
    bounded = min(max(seconds, -62_135_596_800.0), 253_402_300_799.0)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=bounded)
