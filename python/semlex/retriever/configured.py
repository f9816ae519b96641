"""Retrievers made from settings: over the database or over JSON files, asynchronous or synchronous."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from semlex.errors import ConfigurationError
from semlex.retriever.json_fallback import JSONKBRetriever
from semlex.retriever.postgres import PostgreSQLRetriever
from semlex.retriever.synchronous import SyncJSONKBRetriever, SyncRetriever, without_await
from semlex.settings.sources import load_settings
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from semlex.settings.table import Settings


def from_settings(path: str | PathLike[str] | None = None, **settings: object) -> PostgreSQLRetriever | JSONKBRetriever:
    """Return a retriever made from the settings, to be opened with ``async with``.

    It searches the collection that the settings name, with their server, models and search defaults. If
    ``fallback_folder`` is set, the JSON files there are searched when the collection has no hits. If ``use_database``
    (``RAG_ENABLED``) is false, only these JSON files are searched.

    Args:
        path: A settings file, TOML or JSON, that replaces those in the working directory and your home, and is trusted.
        settings: Settings by their names (docs/reference/settings.md); they take precedence over all others.

    Raises:
        ConfigurationError: A setting is unknown, refused or not trusted, or a file cannot be read.
    """
    check_parameters(kind_errors("path", path, str, PathLike, NoneType))
    read = load_settings(None if path is None else Path(path).expanduser(), **settings)
    if not read.use_database:
        return json_retriever(read)
    return PostgreSQLRetriever(**read.retriever_options, **search_parameters(read))


def from_settings_sync(
    path: str | PathLike[str] | None = None, **settings: object
) -> SyncRetriever | SyncJSONKBRetriever:
    """Return a synchronous retriever made from the settings, to be opened with ``with``.

    Args:
        path: As for `from_settings`.
        settings: As for `from_settings`.

    Raises:
        ConfigurationError: As for `from_settings`.
    """
    made: SyncRetriever | SyncJSONKBRetriever = without_await(from_settings(path, **settings))
    return made


def search_parameters(settings: Settings) -> dict[str, Any]:
    """Return the arguments `search_defaults` and `fallback` for a retriever made from the settings."""
    fallback = None if settings.fallback_folder is None else json_retriever(settings)
    return {"search_defaults": settings.search_options, "fallback": fallback}


def json_retriever(settings: Settings) -> JSONKBRetriever:
    """Return the retriever over the JSON files that the settings name."""
    folder = settings.fallback_folder
    if folder is None:
        where = settings.origins.get("use_database", "use_database")
        raise ConfigurationError(
            f"{where} says that no database is used, and fallback_folder names no folder of JSON files to search "
            "instead: set SEMLEX_FALLBACK_FOLDER, or use_database to true"
        )
    return JSONKBRetriever(folder, language=settings.language, top_k=settings.top_k)
