"""Makes the dump of a schema that later versions of semlex have to open, migrate and search.

    python tests/support/collection_dump.py tests/data/collections/schema-3

Run it with the code whose tables are to be remembered, before the schema changes again, and commit what it writes:
``dump.sql`` (plain SQL, from the oldest supported Postgres, so that every version restores it) and ``answers.json``
(what this code found, a line a collection). `test_migrations.py` opens every such folder.

The schema holds four collections of the texts in ``tests/data/collections/handbook``, with several segments,
tombstones, and chunks that were updated, deleted and re-indexed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import psycopg

from semlex import SyncRetriever
from semlex.store.postgres.embedded.binaries import find_installations, run_as, server_account
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.testing import HashEmbedder
from semlex.types.documents import Document

TEXTS = Path(__file__).parents[1] / "data" / "collections" / "handbook"
# Where the texts lay when they were indexed: an absolute path is part of a dump, so it is one that nobody has.
INDEXED = Path("/tmp/semlex-dump/handbook")  # noqa: S108
MAJOR = 16
DIMENSIONS = 16
COLLECTIONS: dict[str, dict[str, Any]] = {
    "words": {},
    "halves": {"vector_storage": "halfvec", "stop_words": False},
    "plain": {"keyword": "tsvector"},
    "keywords": {"embedding_model": "none"},
}
CHUNK_TOKENS = {"words": (64, 8), "halves": (500, 50), "plain": (500, 50), "keywords": (40, 10)}
QUESTIONS = (
    "when is the dome closed",
    "lost key",
    "clean the coffee machine",
    "batteries",
    "zenith meridian",
    '"hand controls"',
    "twelve people",
    "a note about comets",
    "the",
)
NOTES = ("comets", "meteors", "visitors", "keys", "coffee", "weather", "shutters", "lamps")


def opened(url: str, collection: str, **options: Any) -> SyncRetriever:
    """A collection of the dump, with the model it was made with."""
    settings = {"embedding_model": HashEmbedder(DIMENSIONS)} | options
    return SyncRetriever(url, use_reranking=False, collection=collection, **settings)


def answers(url: str, collection: str) -> dict[str, Any]:
    """What the questions find: mode -> question -> [id, keyword score, vector score, fused score]."""
    modes = ("keyword",) if collection == "keywords" else ("keyword", "vector", "hybrid")
    options = {"embedding_model": "none"} if collection == "keywords" else {}
    found: dict[str, Any] = {}
    with opened(url, collection, create=False, **options) as retriever:
        for mode in modes:
            found[mode] = {}
            for question in QUESTIONS:
                hits = retriever.search(question, 8, mode=mode)
                found[mode][question] = [
                    [hit.id, hit.keyword_score, hit.vector_score, hit.fused_score, hit.heading_path] for hit in hits
                ]
        found["chunks"] = retriever.count()
    return found


def _fill(url: str, collection: str) -> None:
    chunk_tokens, overlap_tokens = CHUNK_TOKENS[collection]
    limits = {"chunk_tokens": chunk_tokens, "overlap_tokens": overlap_tokens}
    with opened(url, collection, **COLLECTIONS[collection]) as retriever:
        changed = INDEXED / "weather.txt"
        text = changed.read_text(encoding="utf-8")
        changed.write_text(text.replace("fifty", "forty"), encoding="utf-8")
        retriever.index(INDEXED, **limits)
        changed.write_text(text, encoding="utf-8")
        for number, topic in enumerate(NOTES):
            note = Document(f"a first note about {topic}", {"topic": topic, "number": number}, f"note-{number}")
            retriever.add_documents([note])
        retriever.add_documents(
            [Document("a note about comets, in other words", {"topic": "comets"}, "note-0")]
            + [Document(f"one of many: {number}", {"number": number}, f"many-{number}") for number in range(80)]
        )
        retriever.index(INDEXED, **limits)
        gone = [
            "note-3",
            *(f"many-{number}" for number in range(0, 80, 3)),
            *_chunks_of(url, collection, "telescope.md"),
        ]
        assert retriever.delete(gone).chunks == len(gone)


def _chunks_of(url: str, collection: str, uri: str) -> list[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            f"SELECT chunk_id FROM semlex.{collection}_chunk WHERE source_document = %s ORDER BY 1 LIMIT 1",  # noqa: S608
            [uri],
        ).fetchall()
    return [chunk_id for (chunk_id,) in rows]


def _dump(server: EmbeddedServer) -> str:
    account = server_account(server.folder / "data")
    programs = find_installations(account)[MAJOR]
    command = [str(programs / "pg_dump"), "--schema=semlex", "--no-owner", "--no-privileges", "--inserts", server.url]
    done = run_as(account, command)
    if done.returncode:
        raise SystemExit(done.stderr)
    # What begins with a backslash is for psql alone.
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("\\"))


def make(target: Path) -> None:
    """Writes the dump and the answers of the code that runs."""
    if INDEXED.parent.exists():
        message = f"{INDEXED.parent} is in the way: remove it"
        raise SystemExit(message)
    folder = Path(tempfile.mkdtemp(prefix="semlex-dump-", dir="/tmp")).resolve()
    folder.chmod(0o711)
    target.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(TEXTS, INDEXED)
        with EmbeddedServer(folder / "server", major=MAJOR) as server:
            for collection in COLLECTIONS:
                _fill(server.url, collection)
            found = {collection: answers(server.url, collection) for collection in COLLECTIONS}
            dump = _dump(server)
    finally:
        shutil.rmtree(INDEXED.parent, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
    (target / "dump.sql").write_text(dump, encoding="utf-8")
    lines = [json.dumps({"collection": name} | told, sort_keys=True) + "\n" for name, told in found.items()]
    (target / "answers.json").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    os.umask(0o022)
    make(Path(sys.argv[1]))
