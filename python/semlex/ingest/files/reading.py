"""The bytes of a file that was found."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime, timedelta

from semlex.ingest.files.discovery import FileProblem, FoundFile, problem, too_large
from semlex.ingest.files.safe_open import open_file
from semlex.ingest.loaders.base import FileBytes


def read_file(found: FoundFile) -> FileBytes | FileProblem:
    """Reads a file's bytes; one that is larger by now than it may be is refused, and never more is read.

    Returns:
        The bytes, or the problem with the file.
    """
    max_bytes = found.max_bytes
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


def _read_at_most(file: int, limit: int) -> bytes:
    pieces = []
    while limit > 0 and (piece := os.read(file, min(limit, 1 << 20))):
        pieces.append(piece)
        limit -= len(piece)
    return b"".join(pieces)


def _moment(seconds: float) -> datetime:
    # A damaged file system may hold any number; a datetime holds the years 1 to 9999.
    bounded = min(max(seconds, -62_135_596_800.0), 253_402_300_799.0)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=bounded)
