"""Compare what a collection has stored, and what its searches answer, with what it must."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.ingest.chunk_rows import embedded_text
from semlex.proof.faults import Fault, Kind, expect
from semlex.proof.plain_bm25 import plain_bm25
from semlex.store.proving.faults import (
    StoredChunk,
    count_faults,
    end_snapshot,
    is_made,
    snapshot,
    stored_chunks,
    stored_documents,
)
from semlex.store.proving.ground import connected
from semlex.store.proving.keyword_index import check_keyword_index

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from semlex.embedding.base import Embedder
    from semlex.proof.stirred_folder import StirredFolder
    from semlex.retriever.synchronous import SyncCollection
    from semlex.store.schema.names import Names

TOLERANCE = 1e-5
SHOWN = 5
KINDS_OF_FAULTS: dict[str, Kind] = {
    "a chunk id that stands twice": "doubled",
    "a chunk without a vector": "lost",
    "a vector without a chunk": "doubled",
    "a wrong number of chunks": "lost",
    "a chunk without a document": "lost",
    "a file that stands twice": "doubled",
    "a chunk under another name than its document": "wrong",
}
# Documents that a program adds belong to no file.
OF_FILES = {"a chunk without a document"}


def check_stored(
    url: str,
    names: Names,
    states: Sequence[Mapping[str, str]],
    model: Embedder | None,
    *,
    version: int = 1,
    own_vectors: bool = False,
) -> Mapping[str, str]:
    """Check that a collection of added documents is in one of the states (id -> text), whole; return which.

    With `own_vectors`, some vectors are the caller's, and not compared with the model's.
    """
    with connected(url) as connection:
        if not is_made(connection, names, None if model is None else version):
            expect({} in states, "lost", "the collection is not there")
            return {}
        snapshot(connection)
        chunks = stored_chunks(connection, names, None if model is None else version)
        faults = {} if model is None else count_faults(connection, names, version)
        index = check_keyword_index(connection, names)
        end_snapshot(connection)
    state = _matching(chunks, states)
    _refuse({fault: count for fault, count in faults.items() if fault not in OF_FILES}, index)
    if model is not None and not own_vectors:
        check_vectors(chunks, model)
    return state


def _matching(chunks: Sequence[StoredChunk], states: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """Return the state that the chunks are in, or raise the difference from the nearest one."""
    counted = Counter(chunk.id for chunk in chunks)
    twice = [one for one, count in counted.items() if count > 1]
    expect(not twice, "doubled", f"chunks that are stored twice: {twice[:SHOWN]}")
    found = {chunk.id: chunk.text for chunk in chunks}
    differences = []
    for state in states:
        if found == state:
            return state
        differences.append((sum(found.get(one) != state.get(one) for one in {*found, *state}), state))
    nearest = min(differences, key=lambda one: one[0])[1]
    lost = [one for one in nearest if one not in found]
    more = [one for one in found if one not in nearest]
    other = [one for one in found if one in nearest and found[one] != nearest[one]]
    what = f"of {len(nearest)} chunks: lost {lost[:SHOWN]}, too many {more[:SHOWN]}, other texts {other[:SHOWN]}"
    raise Fault("lost" if lost else "doubled" if more else "wrong", what)


def _refuse(faults: Mapping[str, int], index: Any) -> None:
    for fault, count in faults.items():
        raise Fault(KINDS_OF_FAULTS[fault], f"{fault}: {count} times")
    if not index.is_well:
        kind: Kind = "lost" if index.missing else "doubled" if index.surplus else "wrong"
        raise Fault(kind, f"keyword index: {index}")


def check_vectors(chunks: Iterable[StoredChunk], model: Embedder, *, whole: bool = True) -> None:
    """Check that every stored vector is the model's for its text; if `whole`, that no chunk lacks one."""
    rows = [chunk for chunk in chunks if chunk.vector is not None]
    if whole:
        missing = [chunk.id for chunk in chunks if chunk.vector is None]
        expect(not missing, "lost", f"chunks without a vector: {missing[:SHOWN]}")
    if rows:
        wanted = model.embed_documents([embedded_text(chunk.context, chunk.text) for chunk in rows])
        far = np.abs(np.array([chunk.vector for chunk in rows]) - wanted).max(axis=1) > TOLERANCE
        wrong = [chunk.id for chunk, is_far in zip(rows, far, strict=True) if is_far]
        expect(not wrong, "wrong", f"vectors of another text: {wrong[:SHOWN]}")


def check_files(url: str, names: Names, folder: StirredFolder, model: Embedder, *, complete: bool) -> None:
    """Check that every document is one text that its file had, whole; if `complete`, that it is the present one."""
    with connected(url) as connection:
        if not is_made(connection, names):
            expect(not complete, "lost", "the collection is not there")
            return
        snapshot(connection)
        chunks, documents = stored_chunks(connection, names), stored_documents(connection, names)
        faults, index = count_faults(connection, names), check_keyword_index(connection, names)
        end_snapshot(connection)
    _refuse(faults, index)
    check_vectors(chunks, model)
    own = defaultdict(list)
    for chunk in chunks:
        own[chunk.document_id].append(chunk.text)
    for key, name, digest in documents:
        text = folder.texts.get(bytes(digest))
        expect(text is not None, "wrong", f"{name}: a text that its file never had")
        expect(" ".join(own[key]).split() == str(text).split(), "wrong", f"{name}: of two texts, or half of one")
    if complete:
        stored = {name: bytes(digest) for _, name, digest in documents}
        present = folder.digests()
        lost, more = present.keys() - stored.keys(), stored.keys() - present.keys()
        expect(not lost, "lost", f"files that are not stored: {sorted(lost)[:SHOWN]}")
        expect(not more, "doubled", f"documents whose file is gone: {sorted(more)[:SHOWN]}")
        stale = [name for name in present if present[name] != stored[name]]
        expect(not stale, "wrong", f"files that are stored as they were: {stale[:SHOWN]}")


Rows = list[tuple[str, str]]


def check_rows_of_files(url: str, names: Names, model: Embedder) -> Rows:
    """Check that every document is whole; return name and text of each, which has one chunk."""
    with connected(url) as connection:
        if not is_made(connection, names):
            return []
        snapshot(connection)
        chunks, documents = stored_chunks(connection, names), stored_documents(connection, names)
        faults, index = count_faults(connection, names), check_keyword_index(connection, names)
        end_snapshot(connection)
    _refuse(faults, index)
    check_vectors(chunks, model)
    texts = {chunk.document_id: chunk.text for chunk in chunks}
    return [(name, texts.get(key, "")) for key, name, _ in documents]


def check_answers(collection: SyncCollection, texts: Mapping[str, str], words: Sequence[str], chance: Any) -> None:
    """Check one keyword search against BM25 as written in the books, and one vector search against all texts."""
    query = " ".join(chance.sample(words, 2))
    hits = collection.search(query, 1000, mode="keyword")
    compare_scores({hit.id: hit.keyword_score for hit in hits}, plain_bm25(_english(texts), query), query)
    if texts:
        wanted = chance.choice(sorted(texts))
        best = collection.search(texts[wanted], 1, mode="vector")
        expect(len(best) == 1, "lost", "a search by vectors found nothing")
        expect(
            best[0].vector_score is not None and best[0].vector_score >= 1 - TOLERANCE,
            "wrong",
            f"the text of {wanted} is not found by its own vector",
        )


def _english(texts: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {one: ("english", text) for one, text in texts.items()}


def compare_scores(found: Mapping[str, float | None], wanted: Mapping[str, float], query: str) -> None:
    """Check that a search has found exactly what it must, with the same scores."""
    lost, more = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    expect(not lost, "wrong", f"{query!r} does not find {sorted(lost)[:SHOWN]}")
    expect(not more, "wrong", f"{query!r} finds {sorted(more)[:SHOWN]}")
    other = [one for one in wanted if not math.isclose(found[one] or 0.0, wanted[one], rel_tol=1e-6)]
    expect(not other, "wrong", f"{query!r} gives other scores to {sorted(other)[:SHOWN]}")


def draw_text(chance: random.Random, words: Sequence[str], longest: int = 12) -> str:
    """Return a text of a few words."""
    return " ".join(chance.choices(words, k=chance.randint(2, longest)))
