"""Retrievers as settings say: the database's, or the one over JSON files, with and without an event loop."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError
from semlex.retriever.json_fallback import JSONKBRetriever
from semlex.retriever.postgres import PostgreSQLRetriever
from semlex.retriever.synchronous import SyncJSONKBRetriever, SyncRetriever, without_await
from semlex.settings.load import load_settings
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from semlex.settings.table import Settings


def from_settings(path: str | PathLike[str] | None = None, **settings: object) -> PostgreSQLRetriever | JSONKBRetriever:
    """A retriever as the settings say, to be opened with ``async with``.

    It is the database's, with the settings' server, collection, models and defaults of searches, and with the JSON
    files of ``fallback_folder``, where that is set, for when nothing is found. Where ``use_database`` (``RAG_ENABLED``)
    is false, it is the one over these JSON files alone.

    Args:
        path: A settings file, TOML or JSON, in place of those of the working directory and of your own. It is trusted.
        settings: Settings by their names (docs/settings.md); they go before all others.

    Raises:
        ConfigurationError: A setting is unknown, refused or not trusted, or a file cannot be read.
    """
    read = _read(path, settings)
    if not read.use_database:
        return json_retriever(read)
    return PostgreSQLRetriever(**read.retriever_options, **search_parameters(read))


def from_settings_sync(
    path: str | PathLike[str] | None = None, **settings: object
) -> SyncRetriever | SyncJSONKBRetriever:
    """The same for programs without an event loop, to be opened with ``with``.

    Args:
        path: As for `from_settings`.
        settings: As for `from_settings`.

    Raises:
        ConfigurationError: As for `from_settings`.
    """
    read = _read(path, settings)
    if not read.use_database:
        found: SyncJSONKBRetriever = without_await(json_retriever(read))
        return found
    return SyncRetriever(**read.retriever_options, **search_parameters(read))


def search_parameters(settings: Settings) -> dict[str, Any]:
    """What a retriever is made with so that its searches begin as the settings say."""
    fallback = None if settings.fallback_folder is None else json_retriever(settings)
    return {"search_defaults": settings.search_options, "fallback": fallback}


def json_retriever(settings: Settings) -> JSONKBRetriever:
    """The retriever over the JSON files of the settings."""
    folder = settings.fallback_folder
    if folder is None:
        where = settings.origins.get("use_database", "use_database")
        raise ConfigurationError(
            f"{where} says that no database is used, and fallback_folder names no folder of JSON files to search "
            "instead: set SEMLEX_FALLBACK_FOLDER, or use_database to true"
        )
    return JSONKBRetriever(folder, language=settings.language, top_k=settings.top_k)


def _read(path: str | PathLike[str] | None, settings: dict[str, object]) -> Settings:
    check_parameters(kind_errors("path", path, str, PathLike, NoneType))
    return load_settings(None if path is None else Path(path).expanduser(), **settings)
