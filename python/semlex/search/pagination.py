"""Return the hits of a search page by page; a cursor holds the search and where its next page begins."""

from __future__ import annotations

import hmac
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from semlex.clock import SYSTEM, Clock
from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.filters.forms import Filters, filter_tree
from semlex.filters.tree import FilterTree, Group
from semlex.options.declare import check_options, declared
from semlex.options.search import SearchOptions
from semlex.search.planner import candidate_depth
from semlex.search.request import Page, Request
from semlex.search.rerank import Hits, by_scores, rerank, rerank_weight
from semlex.types.queries import MAX_TOP_K
from semlex.validation import number_errors, refuse, text_errors, whole_number_errors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from semlex.models.executor import ModelExecutor
    from semlex.reranking.base import Reranker
    from semlex.search.state import SearchState
    from semlex.store.schema.collection import CollectionInfo

# Each page runs the same search and returns another part of it. A cursor holds the search (query, options, depth),
# where the page begins, and a fingerprint of the hits on the pages before. It is data and nothing else: JSON in base64
# that a URL can hold, with a version and a signature in front. The key of the signature is stored with the collection,
# so nobody can change the search in a cursor or use it for another collection.
VERSION = b"\x01"
SIGNATURE_BYTES = 32
# The longest cursor that is read, and the longest search in one: the scores of reranked hits come on top.
MAX_CURSOR_CHARACTERS = 160 * 1024
MAX_SEARCH_BYTES = 64 * 1024
MAX_RERANKED = 4 * MAX_TOP_K
CHANGED = "the hits have changed since the previous page: this page may repeat or miss hits; start the search again"
A_CURSOR = "the next_cursor of an earlier page of this collection, complete and unchanged"
_BASE64 = re.compile(r"[A-Za-z0-9_-]+").fullmatch
# Options of a search that a page does not have; a cursor holds the others by name.
_NOT_PAGED = {
    *("vector", "terms", "rewrite", "boost", "tuning", "deadline", "route", "max_results", "group_by", "group_size")
}
_PAGED = declared(SearchOptions).keys() - _NOT_PAGED
_SEARCH = ("query", "terms", "vector", "top_k", "filters", "mode", "boost", "tuning", "options")
_PAGE = ("max_results", "offset", "fingerprint", "scores", "reranker")
_FIELDS = {*_SEARCH, *_PAGE}


def opened_list(request: Request, *, reranks: bool) -> Request:
    """Return the request of the first page, with the number of candidates that all pages use."""
    opened = request.with_candidates(candidate_depth(request, reranks=reranks))
    size = len(_json(_search_of(opened)))
    if size > MAX_SEARCH_BYTES:
        raise ValidationError(
            refuse("query", "too_long", f"{MAX_SEARCH_BYTES} bytes (with vector and filters) for paging", str(size))
        )
    return opened


async def ranked_list(
    state: SearchState, hits: Hits, reranker: Reranker | None, executor: ModelExecutor
) -> tuple[Hits, str | None]:
    """Return the hits up to the end of the page, and the name of the reranker that ordered them, or None."""
    page = state.request.page
    if page is None or not page.offset:
        return await rerank(state, hits, reranker, executor)
    first, rest = hits[: page.reranked], hits[page.reranked :]
    if _fingerprint(hits[: max(page.offset, page.reranked)]) == page.fingerprint:
        # The cursor holds the first page's reranker scores: no page calls the reranker again unless the list changed.
        if page.scores is None:
            return hits, None
        scores, mixed = page.scores
        return by_scores(first, scores, mixed, rerank_weight(state.request.options)) + rest, page.reranker
    state.warnings.append(CHANGED)
    best, reranked_by = await rerank(state, first, reranker, executor)
    return best + rest, reranked_by


def next_cursor(state: SearchState, hits: Hits, reranked_by: str | None) -> str | None:
    """Return the cursor of the next page; None on the last page."""
    request, page = state.request, state.request.page
    if page is None:
        return None
    end = page.offset + request.top_k
    if end >= min(len(hits), page.max_results):
        return None
    given = [(hit.rerank_score, hit.mixed_score) for _, hit in hits if hit.rerank_score is not None]
    scores = None if reranked_by is None else np.array(given, "<f4").reshape(-1, 2).T
    following = Page(page.max_results, end, "", scores, reranked_by)
    fingerprint = _fingerprint(hits[: max(end, following.reranked)])
    content = _search_of(request) | {
        "max_results": page.max_results,
        "offset": end,
        "fingerprint": fingerprint,
        "scores": _text_of(scores),
        "reranker": reranked_by,
    }
    return signed(_json(content), state.collection.cursor_key)


def signed(content: bytes, key: bytes, version: bytes = VERSION) -> str:
    """Return a signed cursor with this content."""
    return urlsafe_b64encode(version + _signature(version + content, key) + content).rstrip(b"=").decode()


def read_cursor(
    cursor: object,
    collection: CollectionInfo,
    filters: Filters | None = None,
    deadline: float | None = None,
    clock: Clock = SYSTEM,
) -> Request:
    """Return the request of the page that a cursor leads to."""
    check_options(SearchOptions, {"deadline": deadline}, "search_page")
    required = filter_tree(filters)
    content = _content_of(cursor, collection.cursor_key)
    try:
        page = _page_of(content)
        if content["options"].keys() - _PAGED:
            _refuse(A_CURSOR, "other content")
        options = {name: content[name] for name in ("boost", "tuning", "terms")} | content["options"]
        options |= {"vector": _numbers_of(content["vector"]), "max_results": page.max_results}
        check_options(
            SearchOptions, {name: value for name, value in options.items() if name != "vector"}, "search_page"
        )
        request = Request.of(
            content["query"],
            content["top_k"],
            content["filters"],
            names=collection.names,
            mode=content["mode"],
            options=cast("SearchOptions", options | {"deadline": deadline}),
            clock=clock,
        )
    except (ConfigurationError, ValidationError, TypeError, AttributeError):
        _refuse(A_CURSOR, "other content")
    if page.offset >= page.max_results or request.candidates is None:
        _refuse(A_CURSOR, "other content")
    # As a text and back: that is how the conditions of the cursor came here.
    if required is not None and not _conditions(filter_tree(str(required))) <= _conditions(request.condition.tree):
        limit = "conditions of the search that the cursor continues: search again with these filters"
        raise ValidationError(refuse("filters", "wrong_type", limit, "a condition that this search does not have"))
    return replace(request, page=page)


def _conditions(tree: FilterTree | None) -> set[str]:
    """Return the conditions that a filter joins by AND, as texts; any other filter is one condition."""
    if isinstance(tree, Group) and tree.word == "and":
        return set(map(str, tree.parts))
    return set() if tree is None else {str(tree)}


def _search_of(request: Request) -> dict[str, Any]:
    return {
        "query": request.text,
        "terms": request.terms,
        "vector": _text_of(request.vector),
        "top_k": request.top_k,
        "filters": None if request.condition.tree is None else str(request.condition.tree),
        "mode": request.mode,
        "boost": [(str(boost.condition.tree), boost.factor) for boost in request.boosts],
        "tuning": request.tuning,
        "options": {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in sorted(request.options.items())
            if name in _PAGED
        },
    }


def _json(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def _content_of(cursor: object, key: bytes) -> dict[str, Any]:
    """Return the content of a cursor: all of its fields, of any type."""
    errors = text_errors("cursor", cursor, max_bytes=MAX_CURSOR_CHARACTERS, blank=False)
    if errors or not isinstance(cursor, str):
        raise ValidationError(errors)
    try:
        raw = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)) if _BASE64(cursor) else b""
    except ValueError:
        raw = b""
    if urlsafe_b64encode(raw).rstrip(b"=").decode() != cursor:  # an ending that base64 leaves unread
        _refuse(A_CURSOR, "another text")
    version, signature, body = raw[:1], raw[1 : 1 + SIGNATURE_BYTES], raw[1 + SIGNATURE_BYTES :]
    if not hmac.compare_digest(signature, _signature(version + body, key)):
        _refuse(A_CURSOR, "another text, a damaged one, or the cursor of another collection")
    if version != VERSION:
        _refuse(f"a cursor of version {VERSION[0]}; search again", f"one of version {version[0]}")
    try:
        content = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        _refuse(A_CURSOR, "other content")
    if not isinstance(content, dict) or content.keys() != _FIELDS:
        _refuse(A_CURSOR, "other content")
    return content


def _page_of(content: dict[str, Any]) -> Page:
    numbers = _numbers_of(content["scores"])
    errors = whole_number_errors("offset", content["offset"], 1, MAX_TOP_K)
    errors += whole_number_errors("max_results", content["max_results"], 1, MAX_TOP_K)
    errors += text_errors("fingerprint", content["fingerprint"])
    if numbers is not None:
        errors += text_errors("reranker", content["reranker"])
        errors += whole_number_errors("scores", len(numbers), 0, 2 * MAX_RERANKED)
        errors += [error for score in numbers.tolist() for error in number_errors("scores", score)]
        if len(numbers) % 2:
            _refuse(A_CURSOR, "other content")
    if errors:
        raise ValidationError(errors)
    scores = None if numbers is None else numbers.reshape(2, -1)
    return Page(content["max_results"], content["offset"], content["fingerprint"], scores, content["reranker"])


def _fingerprint(hits: Hits) -> str:
    digest = blake2b(digest_size=8)
    for candidate, _ in hits:
        document_id, chunk_id = candidate.key
        digest.update(document_id.bytes + chunk_id.encode() + b"\0")
    return digest.hexdigest()


def _signature(body: bytes, key: bytes) -> bytes:
    return hmac.digest(key, body, "sha256")


def _text_of(numbers: NDArray[np.float32] | None) -> str | None:
    """Return numbers as base64 of their bytes, so that they are restored exactly."""
    return None if numbers is None else urlsafe_b64encode(numbers.astype("<f4").tobytes()).decode()


def _numbers_of(text: object) -> NDArray[np.float32] | None:
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError
    try:
        return np.frombuffer(urlsafe_b64decode(text), dtype="<f4").astype(np.float32)
    except ValueError:
        raise TypeError from None


def _refuse(limit: str, actual: str) -> NoReturn:
    raise ValidationError([FieldError(-1, None, "cursor", "wrong_type", limit, actual)])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
