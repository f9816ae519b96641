"""SQLAlchemy: rows of followed tables as entities of a session, in the order of a search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from semlex.errors import ConfigurationError, needing

with needing("sqlalchemy", "sqlalchemy", "sqlalchemy", __name__):
    from sqlalchemy import inspect, select, tuple_

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from sqlalchemy.orm import Mapper, Session, scoped_session
from sqlalchemy.util import await_only

from semlex.integrations.best_rows import RowSearch, with_hits
from semlex.integrations.calls import AnyCollection, checked_collection
from semlex.options.search import SearchOptions
from semlex.retriever.collection import Collection
from semlex.retriever.synchronous import SyncCollection
from semlex.validation import check_parameters, kind_errors, whole_number_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from semlex.filters.forms import Filters
    from semlex.types.followed import RowKey
    from semlex.types.results import SearchResult

M = TypeVar("M")
MAX_ROWS = 1_000
_REGISTERED: WeakKeyDictionary[type, tuple[AnyCollection, str | None]] = WeakKeyDictionary()


def register(model: type, collection: AnyCollection, name: str | None = None) -> None:
    """Tell `search_models` in which collection to search a model and its subclasses.

    Args:
        model: A mapped class, or a base of mapped classes.
        collection: A collection of a `Client` for asynchronous sessions, of `connect_sync` for others. You close its
            client.
        name: Name of the followed table in the collection. Default: the name of the model's table.
    """
    _REGISTERED[model] = (checked_collection(collection), name)


class ModelOptions(SearchOptions, total=False):
    """Options of `search_models`: those of `Collection.search`, and these.

    Attributes:
        where: Conditions of SQLAlchemy, such as ``[Article.tenant_id == 3]``. You get `k` entities if at least `k`
            meet them; see docs/how-to/sqlalchemy-and-django.md.
        filters: As for `Collection.search`.
        loading: Loader options of the statement that loads the entities, such as ``[selectinload(Article.author)]``.
        collection: The collection. Default: that of `register`.
        name: Name of the followed table in the collection. Default: that of `register`, or the name of the model's
            table.
    """

    where: Sequence[Any]
    filters: Filters | None
    loading: Sequence[Any]
    collection: AnyCollection | None
    name: str | None


@overload
def search_models(
    session: Session | scoped_session[Any], model: type[M], query: str, k: int = 10, **options: Unpack[ModelOptions]
) -> list[M]: ...


@overload
def search_models(
    session: AsyncSession | async_scoped_session[Any],
    model: type[M],
    query: str,
    k: int = 10,
    **options: Unpack[ModelOptions],
) -> Coroutine[Any, Any, list[M]]: ...


def search_models(
    session: Any, model: type[M], query: str, k: int = 10, **options: Unpack[ModelOptions]
) -> list[M] | Coroutine[Any, Any, list[M]]:
    """Return the entities of a followed table's rows that fit a query best, best first, each with its `hit`.

    Everything runs in the session's transaction, which is begun if necessary. `where`, filters on ``@row`` columns and
    the entities see the session's flushed changes; the searched texts are those of the last sync.

    Args:
        session: A `Session`, or an `AsyncSession` (then await the result), on psycopg 3.
        model: The mapped class.
        query: 1 character to 4 KiB.
        k: Number of entities, 1 to 1,000. A row is one entity, however many of its chunks fit.
        **options: See `ModelOptions`.

    Raises:
        ConfigurationError: No collection is known for the model, the collection does not fit the session (synchronous
            or asynchronous), or the key of the followed table is not the model's primary key.
    """
    check_parameters(whole_number_errors("k", k, 1, MAX_ROWS), kind_errors("model", model, type))
    given: dict[str, Any] = {"query": query, "k": k, **options}
    found, name = _registered(model, given.pop("collection", None), given.pop("name", None))
    session = session() if isinstance(session, (scoped_session, async_scoped_session)) else session
    if isinstance(session, Session):
        if not isinstance(found, SyncCollection):
            raise ConfigurationError(
                "a Session needs a synchronous collection, but this one is of Client: use one of connect_sync"
            )
        return _search(session, found.using(session).search, model, name, **given)
    if not isinstance(session, AsyncSession):
        raise ConfigurationError(f"session must be a Session or an AsyncSession; got {type(session).__name__}")
    if not isinstance(found, Collection):
        raise ConfigurationError(
            "an AsyncSession needs an asynchronous collection, but this one is synchronous: use one of Client"
        )

    def search(within: Session) -> list[M]:
        def hits(*arguments: Any, **keywords: Any) -> Any:
            return await_only(found.using(within).search(*arguments, **keywords))

        return _search(within, hits, model, name, **given)

    running: Coroutine[Any, Any, list[M]] = session.run_sync(search)
    return running


def _registered(model: type, collection: AnyCollection | None, name: str | None) -> tuple[AnyCollection, str]:
    known, named = next((_REGISTERED[one] for one in model.__mro__ if one in _REGISTERED), (None, None))
    found = known if collection is None else collection
    if found is None:
        raise ConfigurationError(
            f"no collection is known for {model.__name__}: give collection=, or call register({model.__name__}, "
            "collection) once"
        )
    return checked_collection(found), name or named or str(inspect(model).local_table.name)


def _search(
    session: Session,
    search: Callable[..., Sequence[SearchResult]],
    model: type[M],
    name: str,
    /,
    *,
    query: str,
    k: int,
    where: Sequence[Any] = (),
    filters: Filters | None = None,
    loading: Sequence[Any] = (),
    **options: Any,
) -> list[M]:
    mapper: Mapper[M] = inspect(model)
    if "hit" in mapper.all_orm_descriptors:
        raise ConfigurationError(f"{model.__name__} already has an attribute 'hit': give that attribute another name")
    if session.autoflush:
        session.flush()
    rows = RowSearch(search, name, [column.name for column in mapper.primary_key], filters, options)
    criteria = list(where) if isinstance(where, (list, tuple)) else [where]
    known = _Criteria(session, mapper, criteria)
    found = rows.best(query, k, known if criteria else None)
    return with_hits(found, known.entities([hit.key for hit in found if hit.key is not None], loading))


class _Criteria:
    """Conditions of SQLAlchemy on the rows of a model."""

    def __init__(self, session: Session, mapper: Mapper[Any], where: Sequence[Any]) -> None:
        self._session, self._mapper, self._where = session, mapper, where
        self._columns = mapper.primary_key

    def _keyed(self, statement: Any, keys: Iterable[RowKey]) -> Any:
        """Limit a statement to the rows of some keys."""
        columns = self._columns[0] if len(self._columns) == 1 else tuple_(*self._columns)
        return statement.where(columns.in_(list(keys)), *self._where)

    def _own(self, key: RowKey) -> RowKey:
        """Convert a key to the types of the model's columns: some models read a UUID as text."""
        parts = key if isinstance(key, tuple) else (key,)
        kept = [getattr(column.type, "as_uuid", True) for column in self._columns]
        own = tuple(part if is_kept else str(part) for part, is_kept in zip(parts, kept, strict=True))
        return own if len(own) > 1 else own[0]

    def _keys(self, statement: Any) -> list[RowKey]:
        return [_key(row) for row in self._session.execute(statement)]

    def passing(self, keys: Sequence[RowKey]) -> set[RowKey]:
        """Return the given keys whose rows meet the conditions."""
        own = {self._own(key): key for key in keys}
        return {own[key] for key in self._keys(self._keyed(select(*self._columns), own))}

    def some(self, limit: int) -> list[RowKey]:
        """Return keys of rows that meet the conditions, at most `limit`."""
        return self._keys(select(*self._columns).where(*self._where).limit(limit))

    def entities(self, keys: Sequence[RowKey], loading: Sequence[Any]) -> dict[RowKey, Any]:
        """Return the entities of rows by key; rows that are gone are left out."""
        own = {self._own(key): key for key in keys}
        statement = self._keyed(select(self._mapper).options(*loading), own)
        found = self._session.scalars(statement).unique() if own else ()
        return {own[_key(self._mapper.primary_key_from_instance(one))]: one for one in found}


def _key(parts: Sequence[Any]) -> RowKey:
    key: RowKey = tuple(parts) if len(parts) > 1 else parts[0]
    return key
