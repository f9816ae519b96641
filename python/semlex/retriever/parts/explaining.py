"""Why a document is in an answer, or missing: the part of a collection that explains its searches."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from semlex.ingest.files.absence import places_of, why_absent
from semlex.search.explain.why import explain
from semlex.search.request import Request
from semlex.store.query.explain.named_documents import Records, read_known_sources, without_line
from semlex.types.documents import MAX_ID_BYTES
from semlex.types.queries import DEFAULT_TOP_K
from semlex.types.reports.explanations import Explanation
from semlex.validation import check_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from semlex.filters.forms import Boosts, Filters
    from semlex.open_collection import OpenCollection
    from semlex.reranking.base import Reranker
    from semlex.search.fusion import FusionMethod
    from semlex.store.schema.names import Names
    from semlex.types.queries import SearchQuery
    from semlex.types.results import SearchMode

# The longest path that is taken.
MAX_PATH_BYTES = 8 * MAX_ID_BYTES


class CollectionExplaining(ABC):
    """Explanations of searches; `Collection` is one."""

    names: Names

    @abstractmethod
    async def _searched(self, *, has_vector: bool = False) -> OpenCollection:
        """The open collection, with the vectors that there are."""

    @abstractmethod
    async def _reranker(self, wanted: bool | None) -> Reranker | None:
        """What reranks a search that wants it so."""

    async def why(
        self,
        document: str,
        question: str | SearchQuery | None = None,
        top_k: int = DEFAULT_TOP_K,
        filters: Filters | None = None,
        *,
        vector: ArrayLike | None = None,
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        fusion: FusionMethod = "completed",
        weights: Mapping[str, float] | None = None,
        rrf_k: float = 60.0,
        candidates: int | None = None,
        ef_search: int | None = None,
        probes: int | None = None,
        deadline: float | None = None,
        exact_rows: int | None = None,
        index_share: float | None = None,
        boost: Boosts | None = None,
        max_results: int | None = None,
        group_by: Literal["document"] | None = None,
        group_size: int | None = None,
        min_similarity: float | None = None,
        min_rerank: float | None = None,
    ) -> Explanation:
        """Why a document is where it is in the answer to a question, or why it is missing.

        The search is made as `search` would make it. Then it is counted how many chunks are nearer, looked up which
        words are shared, and tried what would bring the document in. It reads only.

        Args:
            document: Id of a chunk or of an added document; a path as `documents` lists it, with or without its source
                (``docs: keys.md``), the end of one path only, or a path on disk; a line may follow (``keys.md:9``).
            question: As `query` of `search`; so are the others.
            top_k: As for `search`.
            filters: As for `search`.
            vector: As for `search`.
            mode: As for `search`.
            rerank: As for `search`.
            fusion: As for `search`.
            weights: As for `search`.
            rrf_k: As for `search`.
            candidates: As for `search`.
            ef_search: As for `search`.
            probes: As for `search`.
            deadline: As for `search`: of the search itself, not of what is read beside it.
            exact_rows: As for `search`.
            index_share: As for `search`.
            boost: As for `search`.
            max_results: As for `search`; the first page is looked at.
            group_by: As for `search`.
            group_size: As for `search`.
            min_similarity: As for `search`.
            min_rerank: As for `search`.

        Raises:
            ValidationError: The document's name, the query, top_k or a filter is refused.
            ConfigurationError: The name means several documents; the message lists them.
            EmbeddingsMissingError: As for `search`.
        """
        check_rows("document", [document], max_bytes=MAX_PATH_BYTES, blank=False)
        opened = await self._searched(has_vector=vector is not None)
        request = Request.checked(
            query=question,
            vector=vector,
            top_k=top_k,
            filters=filters,
            names=self.names,
            mode=mode,
            fusion=fusion,
            weights=weights,
            rrf_k=rrf_k,
            candidates=candidates,
            ef_search=ef_search,
            probes=probes,
            deadline=deadline,
            rerank=rerank,
            exact_rows=exact_rows,
            index_share=index_share,
            boost=boost,
            max_results=max_results,
            group_by=group_by,
            group_size=group_size,
            min_similarity=min_similarity,
            min_rerank=min_rerank,
        )
        sources = await opened.database.read(
            "read the sources", lambda connection: read_known_sources(connection, self.names)
        )
        name = without_line(document)
        # Of a file whose name ends like a line, both are looked for.
        places = [
            place
            for one in dict.fromkeys((document, name))
            for place in await asyncio.to_thread(places_of, one, sources)
        ]
        found = await explain(opened, await self._reranker(rerank), request, document, places)
        await opened.note_use()
        if not isinstance(found, Records):
            return found
        absent = await asyncio.to_thread(why_absent, name, places, sources, found, self.names.collection)
        return Explanation(document, None, (absent,))
