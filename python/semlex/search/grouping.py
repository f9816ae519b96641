"""Group hits by document: choose chunks for each document, and order documents by their best ones."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from semlex.options.search import MAX_CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from semlex.search.fusion import Candidate
    from semlex.search.request import Request
    from semlex.search.rerank import Hits
    from semlex.search.state import Found
    from semlex.store.query.chunks import DocumentKey
    from semlex.store.query.leg import Key


def best_of_documents(
    candidates: Iterable[Candidate], documents: Mapping[Key, DocumentKey], *, count: int, size: int
) -> list[Candidate]:
    """Return the best chunks of the best documents, in their given order."""
    chosen: list[Candidate] = []
    taken: dict[DocumentKey, int] = {}
    for candidate in candidates:
        document = documents.get(candidate.key)
        if document is None or taken.get(document, 0) == size or (document not in taken and len(taken) == count):
            continue
        taken[document] = taken.get(document, 0) + 1
        chosen.append(candidate)
    return chosen


def by_document(hits: Hits, documents: Mapping[Key, DocumentKey], count: int) -> list[Hits]:
    """Return the hits of each of the best documents; a document takes the place of its best hit."""
    groups: dict[DocumentKey, Hits] = {}
    for hit in hits:
        groups.setdefault(documents[hit[0].key], []).append(hit)
    return list(groups.values())[:count]


def in_groups(hits: Hits, groups: list[Hits]) -> Hits:
    """Return the hits document by document if they are grouped, else unchanged."""
    return list(chain.from_iterable(groups)) if groups else hits


def lacks_documents(found: Found, request: Request, depth: int) -> bool:
    """Return whether fewer documents than wanted were found and more candidates might bring others."""
    if found.documents is None or len(set(found.documents.values())) >= request.top_k:
        return False
    return any(len(result.keys) >= depth for result in found.results.values())


def too_few_documents(found: Found, request: Request) -> list[str]:
    """Return the warning if the best candidates are of fewer documents than wanted."""
    if not lacks_documents(found, request, MAX_CANDIDATES):
        return []
    return [f"the best {MAX_CANDIDATES:,} chunks are of fewer documents than wanted; a filter would find others"]
