"""A program for tests: synchronises a folder, and stops itself (SIGSTOP) at a moment of the run.

The moment is ``reading`` (before anything is written), or ``writing`` (in a transaction that has written a batch and is
not committed). It says ``done`` at the end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from semlex.ingest import chunk_rows
from semlex.ingest import run as file_run
from semlex.ingest.files.discovery import FileProblem, FoundFile
from semlex.ingest.loaders.base import FileBytes
from semlex.proof.children import say, stop_here
from tests.support.retrievers import sync_opened

READ, WRITE = chunk_rows.read_file, file_run.write_chunks


def stop() -> None:
    chunk_rows.read_file, file_run.write_chunks = READ, WRITE  # once
    stop_here()


def reading(found: FoundFile) -> FileBytes | FileProblem:
    stop()
    return READ(found)


async def writing(*arguments: Any, **options: Any) -> None:
    await WRITE(*arguments, **options)
    stop()


def main(url: str, folder: Path, moment: str) -> None:
    if moment == "reading":
        chunk_rows.read_file = reading
    else:
        file_run.write_chunks = writing
    with sync_opened(url, "none", collection="runs") as retriever:
        retriever.sync(folder)
    say("done")
