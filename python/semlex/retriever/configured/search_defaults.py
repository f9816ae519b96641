"""What a search has where its call does not say: a retriever is made with it, from settings for example."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args

from semlex.errors import ConfigurationError
from semlex.search.fusion import RRF_K, FusionMethod, check_fusion, shown
from semlex.search.thresholds import check_thresholds
from semlex.types.queries import DEFAULT_TOP_K, MAX_OVERSAMPLING, MAX_TOP_K, RouteBy, SearchQuery
from semlex.types.results import SearchMode
from semlex.validation import check_parameters, kind_errors, number_errors, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class SearchDefaults:
    """Arguments of searches that their calls may leave out.

    An argument of a call goes before. `min_similarity` is left out, with a warning in the results, where the call asks
    for something else: mode ``keyword``, a list of pages, or a fusion that computes no cosines.

    Attributes:
        top_k: Number of results, 1 to 1,000.
        mode: As for `Collection.search`; for a search by a text.
        fusion: As for `Collection.search`.
        hybrid_weight: Share of the vectors, 0 (words alone) to 1 (vectors alone); None: the embedder's own, else a
            half. It becomes the `weights` of a search.
        rrf_k: As for `Collection.search`.
        oversampling: Candidates of each leg, as a multiple of `top_k`, 1 to 100; None: as `Collection.search` chooses.
        min_similarity: As for `Collection.search`.
        route: As for `Collection.search`; for a search by a text.

    Raises:
        ConfigurationError: A value has the wrong kind or is out of range.
    """

    top_k: int = DEFAULT_TOP_K
    mode: SearchMode | None = None
    fusion: FusionMethod = "completed"
    hybrid_weight: float | None = None
    rrf_k: float = RRF_K
    oversampling: float | None = None
    min_similarity: float | None = None
    route: RouteBy | None = None

    def __post_init__(self) -> None:
        check_parameters(
            whole_number_errors("top_k", self.top_k, 1, MAX_TOP_K),
            [] if self.hybrid_weight is None else number_errors("hybrid_weight", self.hybrid_weight, 0, 1),
            [] if self.oversampling is None else number_errors("oversampling", self.oversampling, 1, MAX_OVERSAMPLING),
            kind_errors("mode", self.mode, str, NoneType),
            kind_errors("route", self.route, str, NoneType),
        )
        if self.mode is not None and self.mode not in get_args(SearchMode):
            raise ConfigurationError(f"mode must be 'vector', 'keyword' or 'hybrid'; got {shown(self.mode)}")
        if self.route is not None and self.route not in get_args(RouteBy):
            raise ConfigurationError(f"route must be 'rules' or 'chat'; got {shown(self.route)}")
        check_fusion(self.fusion, None, self.rrf_k)
        check_thresholds(self.min_similarity, None, mode=None, fusion="completed", paged=False)

    def routing(self, text: str | None, route: RouteBy | Literal[False] | None) -> RouteBy | None:
        """What decides the kind of a question, for a search that says so, or says nothing."""
        if route is None:
            return None if text is None else self.route
        return None if route is False else route

    def most(self, query: str | SearchQuery | None, top_k: int | None) -> int:
        """The number of results of a search."""
        if isinstance(query, SearchQuery):
            return query.top_k
        return self.top_k if top_k is None else top_k

    def filled(self, query: str | SearchQuery | None, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The arguments of a call with what it left out, and what could not be kept.

        Args:
            query: Of the call.
            given: Its arguments by name, unchecked: `mode`, `fusion`, `weights`, `rrf_k`, `min_similarity`; and others,
                which stay as they are.

        Returns:
            Arguments of `Request.checked`; what is told with the results.
        """
        options = dict(given)
        text = query.query_text if isinstance(query, SearchQuery) else query
        if options["mode"] is None and text is not None:
            options["mode"] = self.mode
        for name in ("fusion", "rrf_k"):
            if options[name] is None:
                options[name] = getattr(self, name)
        if options["weights"] is None and self.hybrid_weight is not None:
            options["weights"] = {"vector": self.hybrid_weight, "keyword": 1 - self.hybrid_weight}
        options |= {"default_top_k": self.top_k, "oversampling": self.oversampling}
        notes = []
        if options["min_similarity"] is None and self.min_similarity is not None:
            if (why := _without_cosines(options)) is None:
                options["min_similarity"] = self.min_similarity
            else:
                notes.append(f"min_similarity={self.min_similarity:g}, the default here, is left out: {why}")
        return options, notes


def _without_cosines(options: Mapping[str, Any]) -> str | None:
    """Why a search cannot keep a least cosine; None where it can."""
    if options["mode"] == "keyword":
        return "mode 'keyword' computes no cosines"
    if options.get("max_results") is not None:
        return "a list of pages takes no threshold"
    if options["mode"] != "vector" and options["fusion"] != "completed":
        return f"the fusion {shown(options['fusion'])} does not compute the cosine of every hit"
    return None


NO_DEFAULTS = SearchDefaults()
