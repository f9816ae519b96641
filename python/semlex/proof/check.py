"""Compares the data and the answers of a collection with the expected ones; a difference is a fault."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from semlex import _core
from semlex.ingest.chunk_rows import embedded_text
from semlex.proof.texts import WORDS
from semlex.store.proving import StoredChunk, StoredCollection, stored_collection

if TYPE_CHECKING:
    import random
    from collections.abc import Container, Mapping, Sequence

    from semlex.embedding.base import Embedder
    from semlex.retriever.synchronous import SyncCollection
    from semlex.store.schema.names import Names
    from semlex.types.results import SearchResults

T = TypeVar("T")

Kind = Literal["lost", "doubled", "wrong", "hung"]
KINDS: tuple[Kind, ...] = ("lost", "doubled", "wrong", "hung")
# Seconds after which a try counts as hung: far more than a busy machine needs.
LIMIT_SECONDS = 120.0
TOLERANCE = 1e-5
SHOWN = 5
KINDS_OF_FAULTS: dict[str, Kind] = {
    "a chunk id that is stored twice": "doubled",
    "a chunk without a vector": "lost",
    "a vector without a chunk": "doubled",
    "a wrong number of chunks": "lost",
    "a chunk without a document": "lost",
    "a file that is stored twice": "doubled",
    "a chunk with a different document name than its document": "wrong",
}
# Documents that a program adds belong to no file.
OF_FILES = {"a chunk without a document"}


class Fault(Exception):  # noqa: N818 - a finding
    """A fault that a try of a scenario has found."""

    def __init__(self, kind: Kind, what: str) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what


def expect(condition: object, kind: Kind, what: str) -> None:
    """Raise a fault unless a condition is true."""
    if not condition:
        raise Fault(kind, what)


def check_stored(
    url: str,
    names: Names,
    states: Sequence[dict[str, str]],
    model: Embedder,
    *,
    version: int = 1,
    own_vectors: bool = False,
) -> dict[str, str]:
    """Check that a collection of added documents equals one of the states (id -> text); return that state.

    With `own_vectors`, vectors are not compared with the model's, because callers gave some of them.
    """
    found = stored_collection(url, names, version)
    if found is None:
        expect({} in states, "lost", "the collection does not exist")
        return {}
    state = _matching(found.chunks, states)
    _refuse(found, OF_FILES)
    if not own_vectors:
        _check_vectors(found.chunks, model)
    return state


def _matching(chunks: Sequence[StoredChunk], states: Sequence[dict[str, str]]) -> dict[str, str]:
    """Return the state that the chunks equal, or raise a fault with the differences from the most similar state."""
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
    what = f"{len(nearest)} chunks expected: lost {lost[:SHOWN]}, too many {more[:SHOWN]}, wrong text {other[:SHOWN]}"
    raise Fault("lost" if lost else "doubled" if more else "wrong", what)


def _refuse(found: StoredCollection, allowed: Container[str] = ()) -> None:
    for fault, count in found.faults.items():
        expect(fault in allowed, KINDS_OF_FAULTS[fault], f"{fault}: {count} times")
    index = found.index
    kind: Kind = "lost" if index.missing else "doubled" if index.surplus else "wrong"
    expect(index.is_well, kind, f"keyword index: {index}")


def _check_vectors(chunks: Sequence[StoredChunk], model: Embedder) -> None:
    """Check that every stored vector is the model's for its text."""
    if chunks:
        wanted = model.embed_documents([embedded_text(chunk.context, chunk.text) for chunk in chunks])
        # No number is further away than TOLERANCE, and small ones are nearer.
        stored = np.array([chunk.vector for chunk in chunks])
        near = np.isclose(stored, wanted, rtol=9e-6, atol=1e-6).all(axis=1)
        wrong = [chunk.id for chunk, is_near in zip(chunks, near, strict=True) if not is_near]
        expect(not wrong, "wrong", f"vectors of another text: {wrong[:SHOWN]}")


def whole_documents(url: str, names: Names, model: Embedder) -> list[tuple[str, bytes, str]] | None:
    """Check that every document is whole; return each one's name, content hash and text; None without a collection."""
    found = stored_collection(url, names)
    if found is None:
        return None
    _refuse(found)
    _check_vectors(found.chunks, model)
    own = defaultdict(list)
    for chunk in found.chunks:
        own[chunk.document_id].append(chunk.text)
    return [(name, bytes(digest), " ".join(own[key])) for key, name, digest in found.documents]


def check_present(stored: Mapping[str, T], present: Mapping[str, T], noun: str) -> None:
    """Check that exactly the existing files or rows are stored, unchanged."""
    lost, more = present.keys() - stored.keys(), stored.keys() - present.keys()
    expect(not lost, "lost", f"{noun}s that are not stored: {sorted(lost)[:SHOWN]}")
    expect(not more, "doubled", f"documents whose {noun} is gone: {sorted(more)[:SHOWN]}")
    stale = [name for name in present if present[name] != stored[name]]
    expect(not stale, "wrong", f"{noun}s whose old content is stored: {stale[:SHOWN]}")


def check_answers(collection: SyncCollection, texts: Mapping[str, str], chance: random.Random) -> None:
    """Check one keyword search against textbook BM25, and that a vector search for a stored text finds it."""
    query = " ".join(chance.sample(WORDS, 2))
    check_hits(collection.search(query, 1000, mode="keyword"), texts, query)
    if texts:
        wanted = chance.choice(sorted(texts))
        best = collection.search(texts[wanted], 1, mode="vector")
        expect(len(best) == 1, "lost", "vector search found nothing")
        is_found = (best[0].vector_score or 0.0) >= 1 - TOLERANCE
        expect(is_found, "wrong", f"the text of {wanted} is not found by its own vector")


def check_hits(hits: SearchResults, texts: Mapping[str, str], query: str, after: str = "") -> None:
    """Check the hits of a keyword search in texts (id -> text); `after` names the preceding action."""
    wanted = plain_bm25({one: ("english", text) for one, text in texts.items()}, query)
    compare_scores({hit.id: hit.keyword_score for hit in hits}, wanted, f"{after}{query}")


def compare_scores(found: Mapping[str, float | None], wanted: Mapping[str, float], query: str) -> None:
    """Check that a search has found exactly the expected hits, with the same scores."""
    lost, more = wanted.keys() - found.keys(), found.keys() - wanted.keys()
    expect(not lost, "wrong", f"{query!r} does not find {sorted(lost)[:SHOWN]}")
    expect(not more, "wrong", f"{query!r} finds {sorted(more)[:SHOWN]}")
    other = [one for one in wanted if not math.isclose(found[one] or 0.0, wanted[one], rel_tol=1e-6)]
    expect(not other, "wrong", f"{query!r} gives other scores to {sorted(other)[:SHOWN]}")


MAX_TERMS = 64
TYPED_BIT = 1 << 31


def plain_bm25(
    texts: Mapping[str, tuple[str, str]], query: str, *, stop_words: bool = True, k1: float = 1.2, b: float = 0.75
) -> dict[str, float]:
    """Return the score of every text in which a word of the query occurs.

    Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the inverse document
    frequency of Lucene, which is never negative.

    Args:
        texts: Id -> (language, text).
        query: Optional words only: no phrase, no exclusion.
        stop_words: Whether stop words are left out.
        k1: Saturation of repeated words.
        b: Weight of a text's length.
    """
    analyzers = {language: _core.Analyzer(language, stop_words) for language, _ in texts.values()}
    counts = {key: Counter(analyzers[language].terms(text)) for key, (language, text) in texts.items()}
    # A word with accents has a second term that keeps them. It adds nothing to the length.
    lengths = {key: sum(n for term, n in count.items() if not term.startswith("=")) for key, count in counts.items()}
    average = sum(lengths.values()) / len(lengths) if lengths else 0.0
    wanted = {language: analyzer.query(query, MAX_TERMS).wanted for language, analyzer in analyzers.items()}
    units = {unit for terms in wanted.values() for unit, _ in terms}
    scores: dict[str, float] = {}
    idfs: dict[int, float] = {}
    for unit in sorted(units):
        # A word of the query is one term in each language; texts are looked up with the term of their own.
        found = {
            key: frequency
            for key, (language, _) in texts.items()
            for own, term in wanted[language]
            if own == unit and (frequency := counts[key][term])
        }
        idfs[unit] = math.log(1 + (len(texts) - len(found) + 0.5) / (len(found) + 0.5))
        # The folded term has the same unit without this bit; that with accents adds what its idf is above.
        idf = idfs[unit] - (idfs[unit & ~TYPED_BIT] if unit & TYPED_BIT else 0.0)
        if idf <= 0.0:
            continue  # a text with this term alone is not found
        for key, frequency in found.items():
            norm = k1 * (1 - b + b * lengths[key] / average)
            scores[key] = scores.get(key, 0.0) + idf * frequency * (k1 + 1) / (frequency + norm)
    return scores
