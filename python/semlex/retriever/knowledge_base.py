"""Several collections, asked at once: of one server or many, each with its model, language and role."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from semlex.errors import CollectionFailedError, ConfigurationError, SemlexError, ValidationError
from semlex.options.declare import check_options
from semlex.options.search import QuestionOptions
from semlex.parameters import CollectionOptions
from semlex.retriever.base import CLOSED
from semlex.retriever.client import ANY_OPTIONS, Client
from semlex.search.postprocess.merge import merged
from semlex.search.postprocess.steps import check_steps, taken
from semlex.store.postgres.roles import checked_role
from semlex.store.schema.names import Names, checked_identifier
from semlex.types.queries import MAX_TOP_K
from semlex.types.results import KnowledgeResults, SearchResults
from semlex.validation import check_parameters, kind_errors, path_errors, refuse, text_errors, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from os import PathLike
    from typing import Unpack
    from uuid import UUID

    from psycopg_pool import AsyncConnectionPool

    from semlex.embedding.base import Embedder
    from semlex.filters.forms import Filters
    from semlex.reranking.base import Reranker
    from semlex.retriever.collection import Collection
    from semlex.search.postprocess.steps import HitStep
    from semlex.types.results import SearchMode


MAX_COLLECTIONS = 100


@dataclass(frozen=True, eq=False, slots=True)
class Arguments:
    """Arguments of a client; one object for all collections that were added after them."""

    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A collection that was added.

    Attributes:
        label: Its name in the knowledge base.
        names: Its tables.
        role: Its role, or None.
        options: For a new one.
        create: Whether it is made when it does not exist.
        calibration: File of its curve of confidence, or None for the stored one.
        server: Arguments of its client that say which server.
        models: Those that say which models.
    """

    label: str
    names: Names
    role: str | None
    options: CollectionOptions
    create: bool
    calibration: str | PathLike[str] | None
    server: Arguments
    models: Arguments


@dataclass(frozen=True, slots=True)
class KnowledgePlan:
    """The collections, and what holds for the next one.

    Attributes:
        entries: In the order in which they were added.
        server: As `Entry.server`.
        models: As `Entry.models`.
        schema: Of the next one.
        role: Of the next one.
    """

    entries: tuple[Entry, ...] = ()
    server: Arguments = field(default_factory=Arguments)
    models: Arguments = field(default_factory=Arguments)
    schema: str = "semlex"
    role: str | None = None

    def adding(
        self,
        name: str,
        options: CollectionOptions,
        *,
        label: str | None,
        schema: str | None,
        role: str | None,
        create: bool,
        calibration: str | PathLike[str] | None,
    ) -> KnowledgePlan:
        """The plan with one more collection; the arguments are those of `KnowledgeBase.add`."""
        names = Names(self.schema if schema is None else schema, name)
        called = checked_identifier("label", name if label is None else label)
        for other in self.entries:
            if (other.names, other.server) == (names, self.server):
                raise ConfigurationError(
                    f"collection {name!r} of schema {names.schema!r} was added before: leave it out"
                )
            if other.label == called:
                raise ConfigurationError(f"another collection is called {called!r} here: give this one a label=")
        if len(self.entries) == MAX_COLLECTIONS:
            raise ConfigurationError(f"a knowledge base has at most {MAX_COLLECTIONS} collections")
        taken = self.role if role is None else checked_role(role)
        entry = Entry(called, names, taken, options, create, calibration, self.server, self.models)
        return replace(self, entries=(*self.entries, entry))


DEFAULT_HITS = 10
# Of each collection so many times the hits that are wanted, where steps leave some out.
WITH_STEPS = 3


class KnowledgeBase:
    """Several collections that are asked at once, and answer as one.

    It is put together step by step, and every step gives a new one. Close it with `close`, or use it as an async
    context manager.
    What `with_model` and `with_database` say holds for the collections that are added after them. Collections of the
    same server and models share a pool and the models.

    A server is reached by the first call that needs it, so that one that is gone can be skipped.
    `semlex.SyncKnowledgeBase` is the same for programs without an event loop.
    """

    def __init__(self) -> None:
        self._plan = KnowledgePlan()
        self._clients: dict[tuple[Arguments, Arguments], Client] = {}
        self._collections: dict[str, Collection] = {}
        self._reached: set[Client] = set()
        self._is_closed = False

    def _with(self, plan: KnowledgePlan) -> KnowledgeBase:
        one = KnowledgeBase()
        one._plan = plan
        return one

    # --- put together -------------------------------------------------------------------------------------------------

    def with_model(
        self,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal["auto"] = "auto",
        *,
        device: str | None = None,
        dimensions: int | None = None,
        tokenizer: str | PathLike[str] | None = None,
        models: Sequence[str] = (),
    ) -> KnowledgeBase:
        """The same with these models for the collections that are added from now on.

        Without it a collection is searched with the model that it was made with.

        Args:
            embedding_model: As for `PostgreSQLRetriever`.
            reranker_model: As for `PostgreSQLRetriever`.
            use_reranking: As for `PostgreSQLRetriever`.
            device: As for `PostgreSQLRetriever`.
            dimensions: As for `PostgreSQLRetriever`.
            tokenizer: As for `PostgreSQLRetriever`.
            models: As for `PostgreSQLRetriever`.
        """
        given = {
            "embedding_model": embedding_model,
            "reranker_model": reranker_model,
            "use_reranking": use_reranking,
            "device": device,
            "dimensions": dimensions,
            "tokenizer": tokenizer,
            "models": models,
        }
        return self._with(replace(self._plan, models=Arguments(given)))

    def with_database(
        self,
        db_url: str | None = None,
        *,
        schema: str = "semlex",
        role: str | None = None,
        pool: AsyncConnectionPool[Any] | None = None,
        data_folder: str | PathLike[str] | None = None,
        keep_alive: float = 0,
        max_connections: int = 8,
        timeout: float = 10.0,
    ) -> KnowledgeBase:
        """The same with this server for the collections that are added from now on.

        Without it they are those of the embedded Postgres.

        Args:
            db_url: libpq connection string; None (and no `pool`) starts the embedded Postgres.
            schema: Schema of the collections, where `add` names no other.
            role: Role as which they are read, where `add` names no other; see `Client.collection`.
            pool: An open pool that stays yours.
            data_folder: Folder of the embedded Postgres: a path, or its text.
            keep_alive: Seconds for which the embedded Postgres stays after its last user; 0 stops it then.
            max_connections: Size of the pool.
            timeout: Seconds to wait for the server or for a free connection.

        Raises:
            ValidationError: The schema cannot be used.
            ConfigurationError: The role cannot be used.
        """
        given = {
            "db_url": db_url,
            "pool": pool,
            "data_folder": data_folder,
            "keep_alive": keep_alive,
            "max_connections": max_connections,
            "timeout": timeout,
        }
        schema, role = checked_identifier("schema", schema), checked_role(role)
        return self._with(replace(self._plan, server=Arguments(given), schema=schema, role=role))

    def add(
        self,
        name: str,
        options: CollectionOptions = ANY_OPTIONS,
        *,
        label: str | None = None,
        schema: str | None = None,
        role: str | None = None,
        create: bool = False,
        calibration: str | PathLike[str] | None = None,
    ) -> KnowledgeBase:
        """The same with one more collection: of the server and with the models that were named last.

        Args:
            name: Name of the collection.
            options: For a new collection (its language, for example); refused where an existing one has another value.
            label: Its name in the knowledge base, where another collection has its own there: lower-case letters,
                digits and underscores, at most 48.
            schema: Its schema; None: that of `with_database`.
            role: Role as which it is read; None: that of `with_database`.
            create: Whether to make it when it does not exist.
            calibration: As for `PostgreSQLRetriever`.

        Raises:
            ValidationError: A name cannot be used.
            ConfigurationError: The collection, or another of its name, is there already; there are too many; or an
                option or the role cannot be used.
        """
        check_parameters(
            kind_errors("create", create, bool),
            kind_errors("options", options, CollectionOptions),
            path_errors("calibration", calibration),
        )
        plan = self._plan.adding(
            name, options, label=label, schema=schema, role=role, create=create, calibration=calibration
        )
        return self._with(plan)

    @property
    def labels(self) -> list[str]:
        """Names of the collections, in the order in which they were added."""
        return [entry.label for entry in self._plan.entries]

    # --- opened -------------------------------------------------------------------------------------------------------

    async def initialize(self) -> None:
        """Checks what was put together; does nothing when that has been done. No server is asked.

        Raises:
            ConfigurationError: The collection does not exist, or an argument cannot be used.
        """
        if not self._collections:
            self._open()
        self._is_closed = False

    def _open(self) -> None:
        if not self._plan.entries:
            raise ConfigurationError("a knowledge base needs a collection: add(name)")
        clients: dict[tuple[Arguments, Arguments], Client] = {}
        collections = {}
        for entry in self._plan.entries:
            key = (entry.server, entry.models)
            if key not in clients:
                clients[key] = Client(**{**entry.server.given, **entry.models.given})
            collections[entry.label] = clients[key].collection(
                entry.names.collection,
                entry.options,
                create=entry.create,
                schema=entry.names.schema,
                role=entry.role,
                calibration=entry.calibration,
            )
        self._clients, self._collections = clients, collections

    async def close(self) -> None:
        """Closes what was opened: pools, models that were loaded by name, the embedded server's handle."""
        clients, self._clients, self._collections, self._reached = self._clients, {}, {}, set()
        self._is_closed = True
        async with AsyncExitStack() as closing:
            for client in clients.values():
                closing.push_async_callback(client.close)

    async def __aenter__(self) -> Self:
        await self.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def collection(self, label: str) -> Collection:
        """Return one of the collections, to fill or search it alone.

        Args:
            label: Its name in the knowledge base.

        Raises:
            ConfigurationError: No collection has that name, or the knowledge base was closed.
            ConnectionFailedError: Its server cannot be reached.
        """
        self._open_if_new()
        entry = next((entry for entry in self._plan.entries if entry.label == label), None)
        if entry is None:
            check_parameters(text_errors("label", label))
            raise ConfigurationError(f"collection {label!r} does not exist here; collections: {', '.join(self.labels)}")
        client = self._clients[entry.server, entry.models]
        if client not in self._reached:
            await client.initialize()
            self._reached.add(client)
        return self._collections[label]

    async def retrieve(
        self,
        question: str,
        top_k: int = DEFAULT_HITS,
        filters: Filters | None = None,
        *,
        steps: Sequence[HitStep] = (),
        per_collection: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        mode: SearchMode | None = None,
        rerank: bool | None = None,
        **options: Unpack[QuestionOptions],
    ) -> KnowledgeResults:
        """The hits of all collections that fit a question best.

        All are searched at once, each separately. If every hit has a confidence, confidences order them; else their
        places do: all first hits, then all second ones (`KnowledgeResults.merge` says which, docs/tenants.md more).
        Of equals the one of the collection whose name comes first is first, then the one whose id does.

        Args:
            question: 1 character to 4 KiB after trimming.
            top_k: Number of hits, 1 to 1,000.
            filters: As for `search`; they hold for every collection.
            steps: What is done with the hits before the best are taken, in this order: each takes a list of hits and
                gives one, such as those of `semlex.search.postprocess.steps`, or your function, which runs in a
                thread, or an asynchronous one.
            per_collection: Hits of each collection, 1 to 1,000; by default `top_k`, and three times as many with steps.
            on_error: ``raise``, or ``skip``: who does not answer is left out, and the result says so.
            mode: As for `search`.
            rerank: As for `search`.
            **options: As for `search`.

        Raises:
            ValidationError: The question or a filter is refused.
            ConfigurationError: Another argument is, a step gives no hits, or two collections are the same one.
            CollectionFailedError: A collection did not answer; with ``skip``, none did.
        """
        check_parameters(
            kind_errors("question", question, str),
            whole_number_errors("top_k", top_k, 1, MAX_TOP_K),
            [] if per_collection is None else whole_number_errors("per_collection", per_collection, 1, MAX_TOP_K),
            [] if on_error in ("raise", "skip") else refuse("on_error", "unknown_type", "'raise' and 'skip'"),
        )
        check_options(QuestionOptions, options, "retrieve")
        check_steps(steps)
        self._open_if_new()
        wanted = per_collection or min(MAX_TOP_K, top_k * (WITH_STEPS if steps else 1))

        async def search(label: str) -> SearchResults:
            collection = await self.collection(label)
            return await collection.search(question, wanted, filters, mode=mode, rerank=rerank, **options)

        labels = sorted(self._collections)
        answers, failures = parted(labels, await asyncio.gather(*map(search, labels), return_exceptions=True))
        if failures and (on_error == "raise" or not answers):
            label, error = next(iter(failures.items()))
            raise CollectionFailedError(label, error) from error
        self._check_distinct(answers)
        hits, merge = merged(answers)
        return KnowledgeResults(
            (await taken(hits, steps))[:top_k],
            merge=merge,
            uncalibrated=[label for label, found in answers.items() if any(hit.confidence is None for hit in found)],
            searched=answers,
            skipped={label: str(error) for label, error in failures.items()},
        )

    def _open_if_new(self) -> None:
        if self._is_closed:
            raise ConfigurationError(CLOSED)
        if not self._collections:
            self._open()

    def _check_distinct(self, labels: Iterable[str]) -> None:
        """Refuses a collection that was reached in two ways, which would have every hit twice."""
        seen: dict[UUID, str] = {}
        for label in labels:
            other = seen.setdefault(self._collections[label].info.collection_id, label)
            if other != label:
                raise ConfigurationError(
                    f"collections {other!r} and {label!r} here are the same one, or one is a copy of the other: leave "
                    "one out"
                )


def parted(
    labels: Sequence[str], found: Sequence[SearchResults | BaseException]
) -> tuple[dict[str, SearchResults], dict[str, SemlexError]]:
    """The answers by collection, and why others did not answer.

    An argument is refused by all of them; what one alone refuses is in its own state.
    """
    answers, failures = {}, {}
    of_arguments = all(isinstance(one, ConfigurationError) for one in found)
    for label, one in zip(labels, found, strict=True):
        if isinstance(one, SearchResults):
            answers[label] = one
        elif isinstance(one, SemlexError) and not isinstance(one, ValidationError) and not of_arguments:
            failures[label] = one
        else:
            one.add_note(f"in collection {label!r} of the knowledge base")
            raise one
    return answers, failures
