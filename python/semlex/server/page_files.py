"""The files of the page, as they are sent: read once, with their types and checksums."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("page")
# Path of the files on the server.
PLACE = "/page/"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page.

    Attributes:
        content: Its bytes.
        media_type: What they are.
        etag: Which bytes they are, in quotes, as HTTP writes it.
    """

    content: bytes
    media_type: str
    etag: str


def is_page(path: str) -> bool:
    """Whether a path of a request is the page's own: its files say nothing of what is stored."""
    return path == "/" or path.startswith(PLACE)


@cache
def page_files() -> dict[str, PageFile]:
    """Every file of the page by its name."""
    found = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in TYPES:
            content = path.read_bytes()
            found[path.name] = PageFile(content, TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found
