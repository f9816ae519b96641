"""Turns a retriever's answers into rankings of judged documents, and writes TREC's run files."""

from __future__ import annotations

from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast

import numpy as np

from semlex.errors import ConfigurationError
from semlex.filters.tree import F
from semlex.retriever.synchronous import SyncRetriever
from semlex.types.queries import MAX_QUERY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from pathlib import Path

    from semlex.evaluation.metrics import Judgements, Run
    from semlex.filters.tree import FilterTree
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.results import SearchResult

Unit = Literal["chunk", "document"]
P = ParamSpec("P")
T = TypeVar("T")
_IDS_AT_ONCE = 1_000
_SHOWN = 5


def on_its_loop(
    measure: Callable[Concatenate[PostgreSQLRetriever, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[PostgreSQLRetriever | SyncRetriever, P], Coroutine[Any, Any, T]]:
    """Let a measurement also take a `SyncRetriever`, on whose event loop it then runs."""

    @wraps(measure)
    async def run(retriever: PostgreSQLRetriever | SyncRetriever, *given: P.args, **options: P.kwargs) -> T:
        if isinstance(retriever, SyncRetriever):
            return await retriever.awaited(measure, retriever.asynchronous, *given, **options)
        return await measure(retriever, *given, **options)

    return cast("Callable[Concatenate[PostgreSQLRetriever | SyncRetriever, P], Coroutine[Any, Any, T]]", run)


async def judged_unit(retriever: PostgreSQLRetriever, judgements: Judgements) -> Unit:
    """Return ``chunk`` if one of the judged ids is the id of a stored chunk, else ``document``."""
    ids = list({document for judged in judgements.values() for document in judged})
    for start in range(0, len(ids), _IDS_AT_ONCE):
        if await retriever.get(ids[start : start + _IDS_AT_ONCE]):
            return "chunk"
    return "document"


async def absent_notes(retriever: PostgreSQLRetriever, judgements: Judgements, unit: Unit) -> list[str]:
    """Return notes on judged ids that the collection lacks: they are never found, and lower every figure."""
    judged = list(dict.fromkeys(document for found in judgements.values() for document in found))
    present: set[str] = set()
    for start in range(0, len(judged), _IDS_AT_ONCE):
        ids = judged[start : start + _IDS_AT_ONCE]
        present |= {chunk.id for chunk in await retriever.get(ids) if chunk.id is not None}
        if unit == "document":
            present |= await _paths(retriever, F("@source_document").in_(ids))
    absent = [document for document in judged if document not in present]
    if not absent or not present:
        return []
    known = await _paths(retriever, None) if unit == "document" else set()
    shown = [_with_suggestion(document, known) for document in absent[:_SHOWN]]
    more = f" and {len(absent) - _SHOWN:,} more" if len(absent) > _SHOWN else ""
    count = "1 judged document is" if len(absent) == 1 else f"{len(absent):,} judged documents are"
    return [f"{count} not in the collection: {', '.join(shown)}{more}"]


async def _paths(retriever: PostgreSQLRetriever, filters: FilterTree | None) -> set[str]:
    counted = await retriever.fields.facets(["@source_document"], filters, limit=_IDS_AT_ONCE)
    return {str(value.value) for value in counted["@source_document"].values}


def _with_suggestion(document: str, known: Iterable[str]) -> str:
    near = get_close_matches(document, known, n=1, cutoff=0.6)
    return f"{document} (did you mean {near[0]}?)" if near else document


def judged_id(hit: SearchResult, unit: Unit) -> str:
    """Return the id under which a hit is judged: the chunk's, or the document's path for chunks of files."""
    return hit.id if unit == "chunk" or hit.char_start is None else hit.source_document


def ranked_scores(hits: Sequence[SearchResult], unit: Unit) -> dict[str, float]:
    """Return judged id -> score, best first; a repeated id keeps its first place."""
    # A score that is not below the previous one in float32 is lowered to the next float, so that trec_eval keeps the
    # order.
    scores: dict[str, float] = {}
    previous = np.float32(np.inf)
    for hit in hits:
        identifier = judged_id(hit, unit)
        if identifier not in scores:
            with np.errstate(over="ignore"):
                score = min(np.float32(_score(hit)), np.nextafter(previous, np.float32(-np.inf)))
            scores[identifier] = float(score)
            previous = score
    return scores


def _score(hit: SearchResult) -> float:
    for score in (hit.mixed_score, hit.fused_score, hit.vector_score, hit.keyword_score):
        if score is not None:
            return score
    return 0.0


def searchable(text: str) -> tuple[str, bool]:
    """Return a query's text cut to the length that a search accepts, and whether it was cut."""
    cleaned = text.replace("\0", " ").strip()
    encoded = cleaned.encode(errors="replace")
    if len(encoded) <= MAX_QUERY_BYTES:
        return encoded.decode(), False
    return encoded[:MAX_QUERY_BYTES].decode(errors="ignore"), True


def write_run(path: Path, run: Run, tag: str) -> None:
    """Write a run file for trec_eval: query, Q0, document, rank, score, tag; blanks in ids become ``_``."""
    try:
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for query, scores in run.items():
                for rank, (document, score) in enumerate(scores.items(), start=1):
                    stream.write(f"{_column(query)} Q0 {_column(document)} {rank} {score:.9g} {_column(tag)}\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def _column(text: str) -> str:
    return "_".join(text.split()) or "_"
