"""A program for tests: synchronises a folder, and stops itself (SIGSTOP) at a moment of the run.

The moment is ``reading`` (before anything is written), or ``writing`` (in a transaction that has written a batch and is
not committed). It says ``done`` at the end.
"""

from semlex.ingest import chunk_rows
from semlex.ingest import run as file_run
from semlex.proof.children import say, stop_here
from tests.support.retrievers import sync_opened

READ, WRITE = chunk_rows.read_file, file_run.write_chunks


def reading(found):
    chunk_rows.read_file = READ  # once
    stop_here()
    return READ(found)


async def writing(*arguments, **options):
    await WRITE(*arguments, **options)
    file_run.write_chunks = WRITE  # once
    stop_here()


def main(url, folder, moment):
    if moment == "reading":
        chunk_rows.read_file = reading
    else:
        file_run.write_chunks = writing
    with sync_opened(url, "none", collection="runs") as retriever:
        retriever.sync(folder)
    say("done")
