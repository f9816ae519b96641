"""Clients for the databases in Django's settings: one per database, shared by all threads of the process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connections
from psycopg import pq
from psycopg.conninfo import make_conninfo

from semlex.errors import ConfigurationError
from semlex.retriever.synchronous import SyncClient, SyncCollection

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

SETTING = "SEMLEX"
_lock = threading.Lock()
_clients: dict[tuple[str, str], SyncClient] = {}


def collection_of(collection: SyncCollection | str, alias: str) -> SyncCollection:
    """Return a collection by its name, in a database of the settings; return a given `SyncCollection` unchanged."""
    return collection if isinstance(collection, SyncCollection) else client_of(alias).collection(collection)


def client_of(alias: str) -> SyncClient:
    """Return the client of a database, made with the options in the setting ``SEMLEX``."""
    options: Any = getattr(settings, SETTING, {})
    if not isinstance(options, dict) or options.keys() & {"db_url", "pool", "connection"}:
        raise ConfigurationError(
            f"{SETTING} must be a dict of options for connect_sync without an address, such as "
            "{'embedding_model': 'static'}; the address is that of DATABASES"
        )
    address = _address(connections[alias])
    with _lock:
        # The address of a database changes in tests.
        key = address, repr(options)
        if key not in _clients:
            _clients[key] = SyncClient(address, **options)
        return _clients[key]


def _address(connection: BaseDatabaseWrapper) -> str:
    if connection.vendor != "postgresql" or connection.Database.__name__ != "psycopg":
        raise ConfigurationError(
            f"the database {connection.alias!r} must be Postgres through psycopg 3: set its ENGINE to "
            "django.db.backends.postgresql, and install psycopg"
        )
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    given = connection.get_connection_params().items()
    return make_conninfo(**{name: value for name, value in given if name in known and value is not None})


def close_clients() -> None:
    """Close all clients; the next call opens them again."""
    with _lock:
        closing = list(_clients.values())
        _clients.clear()
    for client in closing:
        client.close()
