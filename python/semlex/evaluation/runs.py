"""Rankings of judged documents out of the answers of a retriever, and TREC's run files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from semlex.errors import ConfigurationError
from semlex.types.queries import MAX_QUERY_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from semlex.evaluation.metrics import Judgements, Run
    from semlex.retriever.postgres import PostgreSQLRetriever
    from semlex.types.results import SearchResult

Unit = Literal["chunk", "document"]
_IDS_AT_ONCE = 1_000


async def judged_unit(retriever: PostgreSQLRetriever, judgements: Judgements) -> Unit:
    """What was judged: ``chunk`` when one of the judged ids is the id of a stored chunk, else ``document``."""
    ids = list({document for judged in judgements.values() for document in judged})
    for start in range(0, len(ids), _IDS_AT_ONCE):
        if await retriever.get(ids[start : start + _IDS_AT_ONCE]):
            return "chunk"
    return "document"


def judged_id(hit: SearchResult, unit: Unit) -> str:
    """The id under which a hit is judged: the chunk's, or for a document read from a file the document's source."""
    return hit.id if unit == "chunk" or hit.char_start is None else hit.source_document


def ranked_scores(hits: Sequence[SearchResult], unit: Unit) -> dict[str, float]:
    """Judged id -> score, best first; what comes again, as a document's next chunk, counts where it came first.

    A score that is not below the one before it in float32 is lowered by the least step, so that trec_eval, which
    orders ties by id, keeps the order of the hits.
    """
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
    """The score that decided the order."""
    for score in (hit.rerank_score, hit.fused_score, hit.vector_score, hit.keyword_score):
        if score is not None:
            return score
    return 0.0


def searchable(text: str) -> tuple[str, bool]:
    """A query's text within what a search accepts, and whether it had to be cut."""
    cleaned = text.replace("\0", " ").strip()
    encoded = cleaned.encode(errors="replace")
    if len(encoded) <= MAX_QUERY_BYTES:
        return encoded.decode(), False
    return encoded[:MAX_QUERY_BYTES].decode(errors="ignore"), True


def write_run(path: Path, run: Run, tag: str) -> None:
    """Writes a run as trec_eval reads it: query id, Q0, document id, rank, score, tag.

    White space in an id would shift the columns; it is written as ``_``.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    try:
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for query, scores in run.items():
                for rank, (document, score) in enumerate(scores.items(), start=1):
                    stream.write(f"{_column(query)} Q0 {_column(document)} {rank} {score:.9g} {_column(tag)}\n")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None


def _column(text: str) -> str:
    return "_".join(text.split()) or "_"
