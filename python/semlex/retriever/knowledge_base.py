"""Searches several collections at once, on one server or many, each with its own model, language and role."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Unpack

from semlex.errors import CollectionFailedError, ConfigurationError, SemlexError, ValidationError
from semlex.options.collection import CollectionOptions
from semlex.options.declare import check_options, picked
from semlex.options.search import QuestionOptions
from semlex.retriever.base import CLOSED, Openable
from semlex.retriever.client import ANY_OPTIONS, Client
from semlex.retriever.options import KnowledgeOptions, ModelKeys, ServerKeys
from semlex.search.steps import check_steps, merged, taken
from semlex.store.postgres.roles import checked_role
from semlex.store.schema.names import Names, checked_identifier
from semlex.types.queries import MAX_TOP_K
from semlex.types.results import KnowledgeResults, SearchResults
from semlex.validation import check_parameters, kind_errors, path_errors, text_errors, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from uuid import UUID

    from psycopg_pool import AsyncConnectionPool

    from semlex.embedding.base import Embedder
    from semlex.filters.forms import Filters
    from semlex.reranking.base import Reranker
    from semlex.retriever.collection import Collection

MAX_COLLECTIONS = 100
DEFAULT_HITS = 10
# Of each collection so many times the hits that are wanted, where steps leave some out.
WITH_STEPS = 3


async def search_all(
    collections: Mapping[str, Collection],
    question: str,
    top_k: int = DEFAULT_HITS,
    filters: Filters | None = None,
    **options: Unpack[KnowledgeOptions],
) -> KnowledgeResults:
    """Return the hits of several collections that fit a question best.

    All are searched at once, each separately. If every hit has a confidence, hits are sorted by it; else by rank: all
    first hits, then all second ones (see `KnowledgeResults.merge` and docs/how-to/tenants.md). Ties are broken by the
    collection's name, then by id.

    Args:
        collections: Name that the results show -> collection.
        question: 1 character to 4 KiB after trimming.
        top_k: Number of hits, 1 to 1,000.
        filters: As for `search`; they apply to every collection.
        **options: See `KnowledgeOptions`.

    Raises:
        ValidationError: The question or a filter is refused.
        ConfigurationError: Another argument is refused, a function in `steps` does not return a list of the hits
            that it got, or two collections are the same one.
        CollectionFailedError: A collection did not answer; with ``skip``, no collection answered.
    """
    check_parameters(kind_errors("question", question, str), whole_number_errors("top_k", top_k, 1, MAX_TOP_K))
    check_options(KnowledgeOptions, options, "retrieve")
    steps = options.get("steps", ())
    check_steps(steps)
    wanted = options.get("per_collection") or min(MAX_TOP_K, top_k * (WITH_STEPS if steps else 1))
    searched = picked(QuestionOptions, options) | {"mode": options.get("mode"), "rerank": options.get("rerank")}
    labels = sorted(collections)
    found = await asyncio.gather(
        *(collections[label].search(question, wanted, filters, **searched) for label in labels), return_exceptions=True
    )
    answers, failures = parted(labels, found)
    if failures and (options.get("on_error") != "skip" or not answers):
        label, error = next(iter(failures.items()))
        raise CollectionFailedError(label, error) from error
    seen: dict[UUID, str] = {}
    for label in answers:
        if (other := seen.setdefault(collections[label].info.collection_id, label)) != label:
            raise ConfigurationError(
                f"{other!r} and {label!r} are the same collection, or one is a copy of the other: leave one out"
            )
    hits, merge = merged(answers)
    return KnowledgeResults(
        (await taken(hits, steps))[:top_k],
        merge=merge,
        uncalibrated=[label for label, found in answers.items() if any(hit.confidence is None for hit in found)],
        searched=answers,
        skipped={label: str(error) for label, error in failures.items()},
    )


def parted(
    labels: Sequence[str], found: Sequence[SearchResults | BaseException]
) -> tuple[dict[str, SearchResults], dict[str, SemlexError]]:
    """Return the results of collections that answered and the errors of those that did not.

    Any `ValidationError` is raised, and a `ConfigurationError` if every collection has one: an argument is at fault.
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


@dataclass(frozen=True, slots=True)
class Entry:
    """An added collection: the names of its tables, and the arguments of its client and of `Client.collection`."""

    names: Names
    server: dict[str, Any]
    models: dict[str, Any]
    given: dict[str, Any]


class KnowledgeBase(Openable):
    """Several collections that are searched at once and answer with one list of hits.

    `add`, `with_model` and `with_database` each return a new knowledge base. A server or models apply to collections
    that are added afterwards. Close it with `close`, or use it as an async context manager. Collections of the same
    server and models share a pool and the models.

    The first call that needs a server connects to it, so a server that is down can be skipped. Programs without an
    event loop use `semlex.SyncKnowledgeBase`.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._server: dict[str, Any] = {}
        self._models: dict[str, Any] = {}
        self._clients: dict[tuple[int, int], Client] = {}
        self._collections: dict[str, Collection] = {}
        self._is_closed = False

    def _with(self, **parts: Any) -> KnowledgeBase:
        one = KnowledgeBase()
        one.__dict__.update({"_entries": self._entries, "_server": self._server, "_models": self._models, **parts})
        return one

    # --- built --------------------------------------------------------------------------------------------------------

    def with_model(
        self,
        embedding_model: str | Embedder | None = None,
        reranker_model: str | Reranker | None = None,
        use_reranking: bool | Literal["auto"] = "auto",
        **options: Unpack[ModelKeys],
    ) -> KnowledgeBase:
        """Return a knowledge base with these models for collections that are added later.

        By default, a collection is searched with the model that it was made with.

        Args:
            embedding_model: As for `PostgreSQLRetriever`.
            reranker_model: As for `PostgreSQLRetriever`.
            use_reranking: As for `PostgreSQLRetriever`.
            **options: As for `PostgreSQLRetriever`.
        """
        check_options(ModelKeys, options, "with_model")
        given = {"embedding_model": embedding_model, "reranker_model": reranker_model, "use_reranking": use_reranking}
        return self._with(_models=given | dict(options))

    def with_database(
        self, db_url: str | None = None, *, pool: AsyncConnectionPool[Any] | None = None, **options: Unpack[ServerKeys]
    ) -> KnowledgeBase:
        """Return a knowledge base with this server for collections that are added later.

        The default is the embedded Postgres.

        Args:
            db_url: libpq connection string; None (and no `pool`) starts the embedded Postgres.
            pool: An open pool; you close it.
            **options: As for `PostgreSQLRetriever`. Schema and role apply if `add` names no others.

        Raises:
            ValidationError: The schema cannot be used.
            ConfigurationError: The role or another option cannot be used.
        """
        check_options(ServerKeys, options, "with_database")
        checked_identifier("schema", options.get("schema", "semlex"))
        checked_role(options.get("role"))
        return self._with(_server={"db_url": db_url, "pool": pool, **options})

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
        """Return a knowledge base with one more collection, on the server and with the models that were named last.

        Args:
            name: Name of the collection.
            options: For a new collection (its language, for example); refused if an existing one has another value.
            label: Its name in the knowledge base, if `name` is taken there: lower-case letters, digits and underscores,
                at most 48.
            schema: Its schema; None: that of `with_database`.
            role: Database role that reads it; None: that of `with_database`.
            create: Whether to make it if it does not exist.
            calibration: As for `PostgreSQLRetriever`.

        Raises:
            ValidationError: A name cannot be used.
            ConfigurationError: The collection, or another of its name, was added before; there are too many
                collections; or an option or the role cannot be used.
        """
        check_parameters(
            kind_errors("create", create, bool),
            kind_errors("options", options, CollectionOptions),
            path_errors("calibration", calibration),
        )
        names = Names(self._server.get("schema", "semlex") if schema is None else schema, name)
        called = checked_identifier("label", name if label is None else label)
        if any(one.names == names and one.server is self._server for one in self._entries.values()):
            raise ConfigurationError(f"collection {name!r} of schema {names.schema!r} was added before: leave it out")
        if called in self._entries:
            raise ConfigurationError(f"another collection is called {called!r} here: give this one a label=")
        if len(self._entries) == MAX_COLLECTIONS:
            raise ConfigurationError(f"a knowledge base has at most {MAX_COLLECTIONS} collections")
        given = {
            "options": options,
            "create": create,
            "schema": schema,
            "role": checked_role(role),
            "calibration": calibration,
        }
        return self._with(_entries={**self._entries, called: Entry(names, self._server, self._models, given)})

    @property
    def labels(self) -> list[str]:
        """Names of the collections, in the order in which they were added."""
        return list(self._entries)

    # --- opened -------------------------------------------------------------------------------------------------------

    async def initialize(self) -> None:
        """Check the knowledge base, if that was not done yet, without connecting to a server.

        Raises:
            ConfigurationError: No collection was added, or an argument cannot be used.
        """
        self._is_closed = False
        self._opened()

    def _opened(self) -> dict[str, Collection]:
        if self._is_closed:
            raise ConfigurationError(CLOSED)
        if not self._entries:
            raise ConfigurationError(
                "this knowledge base has no collection: call add(name), and use the knowledge base that it returns"
            )
        if not self._collections:
            clients = {_key(one): Client(**one.server, **one.models) for one in self._entries.values()}
            self._collections = {
                label: clients[_key(one)].collection(one.names.collection, **one.given)
                for label, one in self._entries.items()
            }
            self._clients = clients
        return self._collections

    async def close(self) -> None:
        """Close what this object opened: pools, models loaded by name, its use of the embedded server."""
        clients, self._clients, self._collections, self._is_closed = self._clients, {}, {}, True
        async with AsyncExitStack() as closing:
            for client in clients.values():
                closing.push_async_callback(client.close)

    async def collection(self, label: str) -> Collection:
        """Return one of the collections, to fill or search it alone.

        Args:
            label: Its name in the knowledge base.

        Raises:
            ConfigurationError: No collection has that name, or the knowledge base was closed.
            ConnectionFailedError: Its server cannot be reached.
        """
        collections = self._opened()
        if label not in collections:
            check_parameters(text_errors("label", label))
            raise ConfigurationError(
                f"collection {label!r} is not in this knowledge base, which has {', '.join(self.labels)}"
            )
        await self._clients[_key(self._entries[label])].initialize()
        return collections[label]

    async def retrieve(
        self,
        question: str,
        top_k: int = DEFAULT_HITS,
        filters: Filters | None = None,
        **options: Unpack[KnowledgeOptions],
    ) -> KnowledgeResults:
        """Return the hits of all collections that fit a question best; for arguments and errors see `search_all`."""
        return await search_all(self._opened(), question, top_k, filters, **options)


def _key(entry: Entry) -> tuple[int, int]:
    """Return a key that entries share if they come from the same calls of `with_database` and `with_model`."""
    return id(entry.server), id(entry.models)
