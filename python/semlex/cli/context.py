"""Shared parts of commands: options, settings, the opened collection, progress, output as text or JSON."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape

from semlex.cli.manual import set_server
from semlex.cli.options import SharedOptions, expanded, parameters_of
from semlex.cli.output import choosing, print_json, write_lines
from semlex.cli.terminal import inform, is_verbose, messages, one_line, progress_bar, tell_interruption
from semlex.errors import CollectionNotFoundError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import EllipsisType

    from semlex.ingest.progress import Progress
    from semlex.retriever.synchronous import SyncClient, SyncCollection, SyncRetriever
    from semlex.settings.table import Settings

# Names of shared options that often go together.
SERVER = ("database_url", "data_dir", "keep_alive")
READER = (*SERVER, "read_from")
OUTPUT = ("as_json", "shown_fields", "header")
MODEL = ("embedding_model", "device", "dimensions", "tokenizer")
NEW = ("language", "keyword", "partitions")  # of a collection that the command may make
ONLY = "the only one"  # origin of the setting `collection` if the server has one collection and none was named
SHOWN_NAMES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(SharedOptions):
    """The shared options of a command; None for options that the command does not have."""

    def settings(self, **arguments: Any) -> Settings:
        """Read the settings; these options take precedence over them, and `arguments` over both."""
        from semlex.settings.sources import load_settings

        return load_settings(**self.given() | arguments)

    def given(self) -> dict[str, Any]:
        """Return the options that are settings, by name; None for those that were not given."""
        return {name: value for name, value in asdict(self).items() if name not in OUTPUT}

    @contextmanager
    def opened(
        self,
        settings: Settings | None = None,
        *,
        create: bool = False,
        with_choice: bool = False,
        searches: bool = False,
    ) -> Iterator[SyncRetriever]:
        """Open the collection that the settings name; if they name none and only one exists, open that one."""
        settings = settings or self.settings()
        with self._retriever(settings, create=create, searches=searches) as retriever:
            self._name_in_remedies(settings)
            if with_choice and not self.as_json:
                inform(f"[dim]{escape(retriever.embedding_choice)}[/dim]")
            self._print_unused(retriever, settings)
            yield retriever
            self._wait_for_indexes(retriever)

    @contextmanager
    def opened_later(self, settings: Settings) -> Iterator[SyncCollection]:
        """Yield the collection that the settings name; its first write opens or makes it."""
        from semlex.retriever.synchronous import SyncClient

        with SyncClient(**settings.client_options) as client:
            collection = client.collection(
                settings.collection, settings.collection_options, calibration=settings.calibration
            )
            self._name_in_remedies(settings)
            yield collection
            self._print_unused(collection, settings)
            self._wait_for_indexes(collection)

    def _name_in_remedies(self, settings: Settings) -> None:
        """Let commands in messages repeat the options for the server and the collection."""
        from semlex.settings.table import ARGUMENT

        if settings.origins.get("collection") == ARGUMENT:  # an option named it, or the command did
            set_server(self.database_url, self.data_dir, settings.collection)

    def _print_unused(self, collection: SyncCollection, settings: Settings) -> None:
        """With --verbose, print which defaults the collection does not use."""
        if is_verbose() and not self.as_json:
            for name, (default, stored) in collection.unused_defaults.items():
                line = f"{name} = {default} ({settings.origins[name]}) is not used: the collection has {stored}"
                messages.print(f"[dim]{escape(line)}[/dim]")

    def _wait_for_indexes(self, collection: SyncCollection) -> None:
        """Show the progress of the index builds that a load has started, until they end."""
        if not collection.indexes.building:
            return
        if not self.as_json:
            inform("[dim]everything can be searched now; indexes that make searches faster are being built[/dim]")
        try:
            with self.progress() as progress:
                collection.indexes.wait(progress=progress)
        except KeyboardInterrupt:
            tell_interruption(
                "interrupted: everything is stored; the next load, a worker or semlex maintain create-index builds the "
                "indexes"
            )
            raise

    def _retriever(self, settings: Settings, *, create: bool, searches: bool) -> SyncRetriever:
        from semlex.retriever.configured import search_parameters
        from semlex.retriever.synchronous import SyncRetriever

        options = settings.retriever_options | (search_parameters(settings) if searches else {})
        retriever = SyncRetriever(**options, create=create)
        try:
            retriever.initialize()
        except CollectionNotFoundError:
            if settings.is_set("collection"):
                raise
            retriever = SyncRetriever(**options | {"collection": self._only_collection(settings)}, create=False)
            retriever.initialize()
        return retriever

    def _only_collection(self, settings: Settings) -> str:
        names = self.collection_names(settings)
        if not names:
            raise CollectionNotFoundError("no collection exists yet: semlex index FOLDER makes one")
        if len(names) > 1:
            shown = ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")
            raise CollectionNotFoundError(f"name a collection with -c NAME; collections: {shown}")
        self._report_only(names[0])
        return names[0]

    def _report_only(self, name: str) -> None:
        if not self.as_json:
            inform(f"[dim]the only collection: {escape(one_line(name))}[/dim]")

    def with_only_collection(self, settings: Settings) -> Settings:
        """If no collection was named and only one exists, print its name and return settings with this name."""
        # Commands that make a collection, except `index` and `try`, call this first; else they would make another one.
        names = [] if settings.is_set("collection") else self.collection_names(settings)
        if len(names) != 1 or names[0] == settings.collection:
            return settings
        self._report_only(names[0])
        return replace(settings, collection=names[0], origins=settings.origins | {"collection": ONLY})

    def client(self, settings: Settings | None = None, *, with_models: bool = False) -> SyncClient:
        """Return a client of the settings' server; `with_models` adds the embedding model and the reranker."""
        from semlex.retriever.synchronous import SyncClient

        chosen = settings or self.settings()
        if with_models:
            return SyncClient(**chosen.client_options | {"chat_model": None})
        return SyncClient(**chosen.server_options, embedding_model="none", use_reranking=False)

    def collection_names(self, settings: Settings) -> list[str]:
        """Return the names of the collections on the server and in the schema that the settings name."""
        with self.client(settings) as client:
            return [listed.name for listed in client.collections()]

    def progress(self) -> AbstractContextManager[Callable[[Progress], None] | None]:
        """Return the progress callback of a long operation; None with ``--json``."""
        return progress_bar(shown=not self.as_json)

    def emit(self, value: Any, show: Callable[[], object]) -> None:
        """Print a value as JSON if ``--json`` was given, each entry of a list on a line; else call `show`."""
        if not self.as_json:
            show()
            return
        for entry in value if isinstance(value, list) else [value]:
            print_json(asdict(entry) if is_dataclass(entry) and not isinstance(entry, type) else entry)


_OPTIONS = parameters_of(Context)


def with_context(*names: str | EllipsisType) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add shared and output options to a command; the command gets their values as a `Context`, its first argument."""
    # If a command opens a collection but has no `--model`, its `Context` sets the model to "none".
    order = [*names, *OUTPUT] if ... in names else [..., *names, *OUTPUT]
    fixed = {"embedding_model": "none"} if "collection" in names and "embedding_model" not in names else {}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *parameters = inspect.signature(command, eval_str=True).parameters.values()
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        own, put_together = expanded(own)

        @wraps(command)
        def run(**given: Any) -> None:
            shared = {name: given.pop(name) for name in order if isinstance(name, str)}
            put_together(given)
            _run(command, Context(**shared | fixed), given)

        signature = [parameter for name in order for parameter in (own if name is ... else [_OPTIONS[str(name)]])]
        run.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    return decorate


def _run(command: Callable[..., None], context: Context, given: dict[str, Any]) -> None:
    """Run a command; its error about a missing collection also names the server."""
    if context.database_url is not None and context.data_dir is not None:
        raise ConfigurationError("--database and --data-dir name two servers: give one of them")
    set_server(context.database_url, context.data_dir, context.collection)
    try:
        _print_chosen(command, context, given)
    except CollectionNotFoundError as error:
        raise CollectionNotFoundError(f"{error}. Server: {_server(context.settings())}") from None


def _print_chosen(command: Callable[..., None], context: Context, given: dict[str, Any]) -> None:
    """Run a command; with ``--fields``, it prints only these keys of the objects that ``--json`` would print."""
    with choosing(context.shown_fields, as_json=context.as_json, header=context.header) as chosen:
        if chosen is None:
            command(context, **given)
            return
        try:
            command(replace(context, as_json=True), **given)
        except typer.Exit:
            write_lines(chosen.end())
            raise
        write_lines(chosen.end())


def _server(settings: Settings) -> str:
    """Return the server that was used, without its password."""
    if settings.database_url is not None:
        from semlex.store.postgres.addresses import describe

        return describe(settings.database_url)
    from semlex.store.postgres.embedded.folder import default_folder

    folder = settings.server_folder or default_folder()
    return f"the embedded Postgres in {folder} (DATABASE_URL or --database names another)"
