"""A program for tests: synchronises a folder, and stops itself (SIGSTOP) at a moment of the run.

Arguments: connection string, folder, moment: ``reading`` (before anything is written), or ``writing`` (in a transaction
that has written a batch and is not committed). It prints ``stopping`` before, and ``done`` at the end.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from semlex.ingest import pipeline, prepare_file
from semlex.retriever.synchronous import SyncRetriever
from tests.support.clients.moments import stop_here

if TYPE_CHECKING:
    from semlex.ingest.files.discovery import FileProblem, FoundFile
    from semlex.ingest.loaders.base import FileBytes

READ, WRITE = prepare_file.read_file, pipeline.write_chunks


def stop() -> None:
    prepare_file.read_file, pipeline.write_chunks = READ, WRITE  # once
    sys.stdout.write("stopping\n")
    sys.stdout.flush()
    stop_here()


def reading(found: FoundFile) -> FileBytes | FileProblem:
    stop()
    return READ(found)


async def writing(*arguments: Any, **options: Any) -> None:
    await WRITE(*arguments, **options)
    stop()


def main() -> None:
    address, folder, moment = sys.argv[1:]
    if moment == "reading":
        prepare_file.read_file = reading
    else:
        pipeline.write_chunks = writing
    with SyncRetriever(address, "none", collection="runs", use_reranking=False) as retriever:
        retriever.sync(folder)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
