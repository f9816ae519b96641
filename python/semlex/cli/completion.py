"""Names that a shell completes: collections, sources and fields, as far as the server tells them quickly."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from semlex.retriever.synchronous import SyncClient, SyncCollection
    from semlex.settings.table import Settings

# A key press waits no longer for a server; one that has not answered by then completes nothing.
LIMIT_SECONDS = 1.5


def collection_names(ctx: Any, incomplete: str) -> list[str]:
    """Return names of collections that begin with the typed text."""
    return _completed(ctx, incomplete, lambda client, _: (one.name for one in client.collections()))


def _of_collection(read: Callable[[SyncCollection], Iterable[str]]) -> Callable[[Any, str], list[str]]:
    """Return a completion by names of the collection that begin so."""

    def names(ctx: Any, incomplete: str) -> list[str]:
        return _completed(ctx, incomplete, lambda client, settings: read(_collection(client, settings)))

    return names


source_names = _of_collection(lambda collection: (one.name for one in collection.documents.sources()))
field_names = _of_collection(lambda collection: (one.name for one in collection.fields.list()))
followed_names = _of_collection(lambda collection: (one.table.name for one in collection.tables.followed()))


def _collection(client: SyncClient, settings: Settings) -> SyncCollection:
    """Return the collection that the command line names, else the only one."""
    names = [one.name for one in client.collections()]
    return client.collection(
        names[0] if len(names) == 1 and not settings.is_set("collection") else settings.collection, create=False
    )


def _completed(ctx: Any, incomplete: str, read: Callable[[SyncClient, Settings], Iterable[str]]) -> list[str]:
    """Return completions that `read` gets from the command line's server; none if it does not answer in time."""
    # An embedded server is not started for a completion.
    from semlex.retriever import synchronous  # noqa: F401 - imported before the clock runs

    found: list[str] = []

    def look() -> None:
        with suppress(Exception):  # errors would break the prompt; the command itself reports them
            found.extend(_read(ctx, read))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(LIMIT_SECONDS)
    return [name for name in dict.fromkeys(found) if name.startswith(incomplete)]


def _read(ctx: Any, read: Callable[[SyncClient, Settings], Iterable[str]]) -> list[str]:
    from semlex.retriever.synchronous import SyncClient
    from semlex.settings.sources import load_settings

    given = {name: ctx.params.get(name) for name in ("collection", "database_url", "data_dir")}
    settings = load_settings(**given, embedding_model="none")
    if settings.database_url is None and not _runs(settings.server_folder):
        return []
    with SyncClient(**settings.server_options, embedding_model="none", use_reranking=False) as client:
        return list(read(client, settings))


def _runs(folder: Path | None) -> bool:
    from semlex.store.postgres.embedded.server import server_status

    return bool(server_status(folder)["running"])
