"""The collection that a command works on, opened."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from semlex.cli.terminal import inform, is_verbose, messages, one_line
from semlex.errors import CollectionNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semlex.retriever.synchronous import SyncRetriever
    from semlex.settings.load import Settings


@contextmanager
def opened(
    settings: Settings, *, quiet: bool, create: bool = False, with_choice: bool = False
) -> Iterator[SyncRetriever]:
    """The collection of the settings; where none was named and there is but one, that one.

    Args:
        settings: As the command got them.
        quiet: Whether nothing is told beside results.
        create: Whether it is made where it does not exist.
        with_choice: Whether the choice of the model is told.

    Raises:
        CollectionNotFoundError: There is none, and none is made.
    """
    with _retriever(settings, create=create, quiet=quiet) as retriever:
        if with_choice and not quiet:
            inform(f"[dim]{escape(retriever.retriever.embedding_choice)}[/dim]")
        if is_verbose() and not quiet:
            for name, (default, stored) in retriever.retriever.unused_defaults.items():
                line = f"{name} = {default} ({settings.origins[name]}) is not used: the collection has {stored}"
                messages.print(f"[dim]{escape(line)}[/dim]")
        yield retriever


def collection_names(settings: Settings) -> list[str]:
    """The collections of the settings' server and schema."""
    from semlex.diagnostics.collections import list_all

    found = list_all(settings.url, settings.schema_name, settings.server_folder, settings.keep_alive)
    return [entry["name"] for entry in found]


def _retriever(settings: Settings, *, create: bool, quiet: bool) -> SyncRetriever:
    from semlex.retriever.synchronous import SyncRetriever

    retriever = SyncRetriever(**settings.retriever_options, create=create)
    try:
        retriever.initialize()
    except CollectionNotFoundError:
        names = [] if settings.is_set("collection") else collection_names(settings)
        if len(names) != 1:
            raise
        if not quiet:
            inform(f"[dim]the only collection: {escape(one_line(names[0]))}[/dim]")
        retriever = SyncRetriever(**settings.retriever_options | {"collection": names[0]}, create=create)
        retriever.initialize()
    return retriever


def load_settings(**arguments: Any) -> Settings:
    """As `semlex.settings.load.load_settings`, loaded when it is called."""
    from semlex.settings import load

    return load.load_settings(**arguments)
