"""How well a collection can be searched: the part of a collection that asks it its own headings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from semlex.options.declare import check_options
from semlex.options.search import SearchArguments
from semlex.progress import ProgressOption
from semlex.progress import shown as progress_shown
from semlex.types.checkups import MAX_SAMPLE, MAX_SEED
from semlex.types.results import SearchMode
from semlex.validation import callable_errors, check_parameters, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from semlex.open_collection import OpenCollection
    from semlex.types.checkups import Checkup
    from semlex.types.results import SearchMode

T = TypeVar("T")


class CollectionChecking(ABC):
    """Checkups; `Collection` is one."""

    @abstractmethod
    async def _searched(self, *, has_vector: bool = False) -> OpenCollection:
        """The open collection, with the vectors that there are."""

    @abstractmethod
    async def _run_search(
        self, opened: OpenCollection, run: Callable[[OpenCollection], Awaitable[T]], *, has_vector: bool = False
    ) -> T:
        """Run a search; once more if the collection was dropped, since another one may have its name now."""

    async def checkup(
        self,
        sample: int | None = None,
        *,
        seed: int = 0,
        mode: SearchMode | None = None,
        progress: ProgressOption = None,
        estimated: Callable[[float], None] | None = None,
    ) -> Checkup:
        """How well this collection can be searched, without judged questions: its own headings are asked.

        Each heading of the sample (of Python code the first line of a docstring) is a question, which should find the
        section below it. It is taken out of that section first, in memory: of the path above the chunks and of their
        text. They are embedded and analysed anew so, and ranked among all other chunks as they are, in the order of
        the default fusion, without a reranker. Nothing is written.

        Args:
            sample: Most headings, 1 to 100,000; None for 200 with a model that takes long to embed, else 2,000.
            seed: Of the sample, 0 to 2,147,483,647; the same one asks the same headings.
            mode: As for `search`.
            progress: Called after every heading; ``bar`` shows it.
            estimated: Called once, after the first headings, with the seconds that the others will take.

        Raises:
            ConfigurationError: An argument is refused, the collection is empty, it has no heading that could be asked,
                or its keyword engine is none that tells its scores.
            EmbeddingsMissingError: As for `search`.
        """
        check_parameters(
            [] if sample is None else whole_number_errors("sample", sample, 1, MAX_SAMPLE),
            whole_number_errors("seed", seed, 0, MAX_SEED),
            callable_errors("estimated", estimated),
        )
        check_options(SearchArguments, {"mode": mode}, "checkup")
        bars = progress_shown(progress)
        from semlex.diagnostics.checkup import CheckupRun  # noqa: PLC0415 - most programs only search

        opened = await self._searched()
        with bars as tell:
            return await self._run_search(
                opened, lambda opened: CheckupRun(opened, mode, tell, estimated).run(sample, seed)
            )
