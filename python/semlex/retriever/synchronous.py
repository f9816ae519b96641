"""The synchronous classes: every public method of the asynchronous ones without ``await``, from any thread.

Methods, signatures and docstrings are taken from the asynchronous classes when a class is made. Types for checkers and
editors are in `synchronous.pyi`, which ``./x stubs`` writes.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import inspect
import re
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from functools import wraps
from importlib import import_module
from types import FunctionType
from typing import Any, ClassVar, ParamSpec, Self, TypeVar, cast

from semlex.errors import ConfigurationError, SemlexError, WorkAbandonedError
from semlex.forks import drop, renew_after_fork
from semlex.options.declare import check_options, unpacked
from semlex.retriever.base import CLOSED, NOT_SENT, Openable
from semlex.retriever.client import Client
from semlex.retriever.collection import PARTS, Collection
from semlex.retriever.jobs import Job
from semlex.retriever.json_fallback import JSONKBRetriever
from semlex.retriever.knowledge_base import KnowledgeBase
from semlex.retriever.postgres import PostgreSQLRetriever

P = ParamSpec("P")
T = TypeVar("T")
CLOSED_MEANWHILE = (
    "another thread closed this retriever or client during the call; batches that were complete are stored"
)
# Keyword arguments that belong to an event loop: a synchronous object has a loop of its own.
LOOP_BOUND = frozenset({"pool", "connection"})
OWN_LOOP = """\
It owns one event loop in one thread; the methods hand their work to it and wait. The first call opens it. Inside a
running event loop use `{0}` itself: waiting here would block that loop. `close` ends the calls of other threads with a
`WorkAbandonedError`. A forked child opens everything again at its first call."""
_KINDS: dict[type, type[Synchronous] | None] = {}  # asynchronous class -> synchronous class; None: it has none
_WORD = re.compile(r"\w+")
_NAMES = {name: f"Sync{name}" for name in PARTS}  # of asynchronous classes -> of their synchronous ones


class LoopThread:
    """An event loop in its own thread; other threads submit calls and wait for them."""

    def __init__(self) -> None:
        # Made by a factory, it does not become the current loop of the thread that makes it. psycopg refuses the loop
        # that is usual on Windows.
        factory = asyncio.SelectorEventLoop if sys.platform == "win32" else asyncio.new_event_loop
        self._runner = asyncio.Runner(loop_factory=factory)
        self._loop = self._runner.get_loop()
        self._end = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._closing = False
        # Held while a call is handed over: none arrives after the last that is answered.
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="semlex-loop", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Return whether the caller runs in this loop's thread, where waiting for a call would block forever."""
        return threading.current_thread() is self._thread

    def run(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Call an asynchronous method on the loop and wait for it."""
        future = self._submit(method, *arguments, **options)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise WorkAbandonedError(CLOSED_MEANWHILE) from None
        except BaseException:
            future.cancel()  # Ctrl-C while waiting: stop the work, too
            raise

    async def awaited(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Call an asynchronous method on the loop from another event loop, which keeps running meanwhile."""
        future = asyncio.wrap_future(self._submit(method, *arguments, **options))
        try:
            return await future
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the caller was cancelled, and with it the call
            raise WorkAbandonedError(CLOSED_MEANWHILE) from None

    def _submit(
        self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
    ) -> concurrent.futures.Future[T]:
        async def call() -> T:
            task = asyncio.current_task()
            assert task is not None  # noqa: S101 - a coroutine that runs has a task
            self._calls.add(task)
            try:
                return await method(*arguments, **options)
            finally:
                self._calls.discard(task)

        with self._lock:
            if self._closing:
                raise WorkAbandonedError("another thread has closed this retriever or client: open it again")
            return asyncio.run_coroutine_threadsafe(call(), self._loop)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Cancel all calls, run one last call, and stop the loop and its thread."""
        with self._lock:
            closing, self._closing = self._closing, True
            future = None if closing else asyncio.run_coroutine_threadsafe(self._finish(last), self._loop)
        try:
            if future is not None:
                future.result()
        finally:
            if future is not None:
                self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    async def _finish(self, last: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        for call in self._calls:
            if not call.cancelling():  # a second time would interrupt its cleanup
                call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        if last is not None:
            await last()

    def _serve(self) -> None:
        # Its end cancels what is left, closes asynchronous generators and waits for the loop's own threads.
        with self._runner:
            self._runner.run(self._end.wait())


class LoopRunner:
    """Runs the calls of one asynchronous client or retriever, from any thread."""

    def __init__(self, inner: Openable) -> None:
        self._inner = inner
        self._loop: LoopThread | None = None
        self._is_open = self._is_closed = False
        self._failure: BaseException | None = None  # of the last attempt to open
        self._changing = threading.Lock()  # held while it is opened or closed
        renew_after_fork(self)

    def initialize(self) -> None:
        """Start the loop and open the object on it, unless that is done; after `close` it is opened again.

        If an attempt fails, all threads that waited for it get its error, so that none waits for a second timeout.
        """
        self._refuse_own_thread()
        known = self._failure
        with self._changing:
            if self._is_open:
                return
            if self._failure is not None and self._failure is not known:
                raise self._failure
            self._loop = loop = LoopThread()
            try:
                loop.run(self._inner.initialize)
            except BaseException as error:
                self._failure = error if isinstance(error, SemlexError) else None
                self._loop = None
                loop.close()
                raise
            self._is_open, self._is_closed, self._failure = True, False, None
            _open.add(self)

    def close(self, error: BaseException | None = None) -> None:
        """Close the object and stop the loop; calls of other threads end with a `WorkAbandonedError`.

        Args:
            error: The error that ended the ``with`` block, if any.
        """
        self._refuse_own_thread()
        loop = self._loop
        try:
            if loop is not None:
                inner = self._inner
                loop.close(inner.close if error is None else lambda: inner.__aexit__(type(error), error, None))
        finally:
            with self._changing:
                self._is_open, self._is_closed, self._failure = False, True, None
                if self._loop is loop:
                    self._loop = None
                _open.discard(self)

    def run(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Call an asynchronous method and wait for it; the first call opens the object."""
        return self._running().run(method, *arguments, **options)

    async def awaited(self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Call an asynchronous method from another event loop, which keeps running; errors are those of `run`."""
        return await self._running().awaited(method, *arguments, **options)

    def _running(self) -> LoopThread:
        self._refuse_own_thread()
        if not self._is_open and not self._is_closed:
            self.initialize()
        loop = self._loop
        if loop is None or not self._is_open:
            raise ConfigurationError(CLOSED)
        return loop

    def iterate(self, stream: AsyncIterator[Any]) -> Generator[Any, None, None]:
        """Yield the items of an asynchronous iteration without ``await``; ending this generator ends that iteration."""
        ended = object()
        turn = asyncio.Lock()  # a call that is interrupted may take a moment to end
        last: asyncio.Task[Any] | None = None

        async def following() -> object:
            nonlocal last
            last = asyncio.current_task()
            async with turn:
                return await anext(stream, ended)

        async def end() -> None:
            if last is not None and not last.cancelling():
                last.cancel()  # nobody waits for it if Ctrl-C came while it was handed over
            async with turn:
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()

        try:
            while (one := self.run(following)) is not ended:
                yield without_await(one, self)
        finally:
            if self._is_open:
                self.run(end)

    def _refuse_own_thread(self) -> None:
        if self._loop is not None and self._loop.is_current:
            raise ConfigurationError(
                "this call was made inside another call of the same object (in a progress callback?), where it would "
                "wait for itself: make it when the outer call has returned, or use a second object"
            )

    def _after_fork(self) -> None:
        drop(self._loop)
        self._loop, self._is_open, self._failure = None, False, None
        self._changing = threading.Lock()
        _open.discard(self)

    def __reduce__(self) -> str:
        raise ConfigurationError(NOT_SENT)


# What is open lives until it is closed: collected earlier, it would end under the hands of its loop.
_open: set[LoopRunner] = set()


@atexit.register
def _stop_all() -> None:
    """Stop the loops that were left open at exit, so that no task ends half-way."""
    for runner in list(_open):
        if runner._loop is not None:  # noqa: SLF001 - of this module
            runner._loop.close()  # noqa: SLF001


class Synchronous:
    """An asynchronous object behind plain functions, callable from any thread."""

    _members: ClassVar[dict[str, Any]] = {}  # the asynchronous members that methods here stand for
    _asynchronous: Any
    _runner: LoopRunner

    def __init_subclass__(cls, of: type | None = None) -> None:
        """Give the class the public members of an asynchronous class, except those written by hand."""
        if of is None:
            return
        _KINDS[of] = cls
        _NAMES[of.__name__] = cls.__name__
        cls._members, inherited = public_members(of), cls._members
        for name, member in cls._members.items():
            if inherited.get(name) is not member if name in inherited else not hasattr(cls, name):
                setattr(
                    cls, name, _method(cls, member) if isinstance(member, FunctionType) else _property(name, member)
                )
        if issubclass(cls, Opened):
            cls.__init__ = _constructor(cls, of)  # type: ignore[method-assign]
            arguments = "".join(inspect.cleandoc(of.__doc__ or "").partition("\n\nArgs:")[1:])
            cls.__doc__ = f"{cls.__doc__}\n\n{OWN_LOOP.format(of.__name__)}{_without(LOOP_BOUND, arguments)}"

    @property
    def asynchronous(self) -> Any:
        """The asynchronous object behind this one."""
        return self._asynchronous

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """Call an asynchronous function on this object's event loop and wait for its result.

        Raises:
            WorkAbandonedError: The object was closed during the call.
        """
        return self._runner.run(function, *arguments, **options)

    async def awaited(
        self, function: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Call an asynchronous function on this object's event loop from your own event loop, which keeps running.

        Call methods of `asynchronous` this way to share one object between synchronous and asynchronous code.

        Raises:
            WorkAbandonedError: The object was closed during the call.
        """
        return await self._runner.awaited(function, *arguments, **options)

    def __repr__(self) -> str:
        inner = repr(self._asynchronous)
        return super().__repr__() if inner.startswith("<") else f"Sync{inner}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Synchronous) and self._asynchronous == other._asynchronous

    def __hash__(self) -> int:
        return hash(self._asynchronous)


class Opened(Synchronous):
    """A synchronous object that runs its own event loop until it is closed."""

    def initialize(self) -> None:
        """Open the object; do nothing if it is open."""
        self._runner.initialize()

    def close(self) -> None:
        """Close what was opened; calls of other threads end with a `WorkAbandonedError`.

        It first waits for indexes that are being built after a load, unless an error ended the ``with`` block.
        """
        self._runner.close()

    def __reduce__(self) -> str:
        return self._runner.__reduce__()

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._runner.close(error)


def public_members(of: type) -> dict[str, Any]:
    """Return the public methods, properties and declared fields of a class by name, in the order of its source."""
    found: dict[str, Any] = {}
    for kind in reversed(of.__mro__):
        found |= dict.fromkeys(inspect.get_annotations(kind)) | vars(kind)
    kept = {name: member for name, member in found.items() if not name.startswith("_")}
    return {name: member for name, member in kept.items() if not isinstance(member, (classmethod, staticmethod))}


def synchronous_class(of: type) -> type[Synchronous] | None:
    """Return the synchronous class of an asynchronous one, making it if necessary; None for any other class."""
    if of not in _KINDS:
        made = None
        if of.__module__.startswith("semlex.retriever.") and any(
            map(inspect.iscoroutinefunction, public_members(of).values())
        ):
            summary = {"__doc__": f"`{of.__name__}` behind plain functions.", "__module__": __name__}
            made = cast("type[Synchronous]", type(f"Sync{of.__name__}", (Synchronous,), summary, of=of))
            globals()[made.__name__] = made
        _KINDS[of] = made
    return _KINDS[of]


def without_await(found: Any, runner: LoopRunner | None = None) -> Any:
    """Wrap an asynchronous object, or a list of them, in its synchronous class; return any other value unchanged.

    Args:
        found: Any value.
        runner: Runner of the object's calls. If it is None, or the object must be opened, a new runner is made.
    """
    if type(found) is list:
        return [without_await(one, runner) for one in found] if found and synchronous_class(type(found[0])) else found
    if isinstance(found, AsyncIterator):
        assert runner is not None  # noqa: S101 - methods have one
        return runner.iterate(found)
    kind = synchronous_class(type(found))
    if kind is None:
        return found
    made = kind.__new__(kind)
    own = runner is None or issubclass(kind, Opened)
    # The runner comes first: pickling refuses it, and says why.
    made.__dict__.update(_runner=LoopRunner(found) if own else runner, _asynchronous=found)
    return made


def _method(cls: type, member: FunctionType) -> Callable[..., Any]:
    """Return a method that calls the asynchronous method and waits for its result."""
    name, is_awaited = member.__name__, inspect.iscoroutinefunction(member)

    def call(self: Synchronous, *arguments: Any, **options: Any) -> Any:
        method = getattr(self._asynchronous, name)
        found = self._runner.run(method, *arguments, **options) if is_awaited else method(*arguments, **options)
        return self if found is self._asynchronous else without_await(found, self._runner)

    return _presented(call, cls, member)


def _constructor(cls: type, of: type) -> Callable[..., None]:
    def call(self: Synchronous, *arguments: Any, **options: Any) -> None:
        self._asynchronous = of(*arguments, **options)
        self._runner = LoopRunner(self._asynchronous)

    return _presented(call, cls, cast("Any", of).__init__)


def _property(name: str, member: Any) -> property:
    """Return a property that reads a property or declared field of the asynchronous object."""

    def read(self: Synchronous) -> Any:
        return without_await(getattr(self._asynchronous, name), self._runner)

    getter = getattr(member, "fget", None) or getattr(member, "func", None)
    read.__annotations__ = {} if getter is None else {"return": _returned(getter)}
    return property(read, doc=getattr(member, "__doc__", None) or f"The value of `{name}`.")


def _presented(call: Callable[..., Any], cls: type, member: FunctionType) -> Callable[..., Any]:
    """Return `call` with the docstring and signature of `member`, without arguments that belong to an event loop."""
    left_out = LOOP_BOUND.intersection(member.__kwdefaults__ or ())
    returned, qualified = _returned(member), f"{cls.__name__}.{member.__name__}"

    @wraps(member)
    def made(self: Synchronous, *arguments: Any, **options: Any) -> Any:
        signature = made.__signature__ = inspect.signature(made)  # type: ignore[attr-defined]
        try:  # wrong arguments are refused before a server is reached
            given = signature.bind(self, *arguments, **options).arguments.get("options")
        except TypeError as error:
            raise TypeError(f"{qualified}() {error}") from None
        if given and (declarations := unpacked(member)) is not None:
            check_options(declarations, given, qualified)
        return call(self, *arguments, **options)

    made.__module__, made.__qualname__ = __name__, qualified
    if returned != member.__annotations__.get("return", ""):  # signatures are made when they are read
        twin = FunctionType(
            member.__code__, member.__globals__, member.__name__, member.__defaults__, member.__closure__
        )
        twin.__kwdefaults__, twin.__annotations__ = member.__kwdefaults__, member.__annotations__ | {"return": returned}
        made.__wrapped__ = twin
    if left_out:
        signature = inspect.signature(made)
        kept = [one for name, one in signature.parameters.items() if name not in left_out]
        made.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        made.__doc__ = _without(left_out, inspect.cleandoc(member.__doc__ or ""))
    return made


def _returned(function: FunctionType) -> str:
    """Return, as text, the type that a function returns when no ``await`` is needed."""
    told: str = function.__annotations__.get("return") or ""
    for name in _WORD.findall(told):
        if isinstance(kind := function.__globals__.get(name), type):
            synchronous_class(kind)
        if name in _NAMES:
            told = re.sub(rf"\b{name}\b", _NAMES[name], told)
        elif name == "AsyncGenerator":
            told = told.replace("AsyncGenerator", "Generator").replace(", None]", ", None, None]")
    return told


def _without(names: frozenset[str], docstring: str) -> str:
    """Return a docstring without the lines about some arguments."""
    return re.sub(rf"\n    (?:{'|'.join(names)}): .*(?:\n {{8,}}.*)*", "", docstring) if names else docstring


class SyncJob(Synchronous, of=Job):
    """The state of a job when it was read; `status` reads it again."""


class SyncCollection(Synchronous, of=Collection):
    """`Collection` behind plain functions, callable from any thread; `SyncClient.collection` makes one."""


class SyncClient(Opened, of=Client):
    """`Client` behind plain functions, callable from any thread."""


class SyncRetriever(SyncCollection, Opened, of=PostgreSQLRetriever):
    """`PostgreSQLRetriever` behind plain functions, callable from any thread."""

    def drop_collection(self) -> bool:
        """Drop the collection with everything in it and close this retriever; return whether it existed."""
        dropped: bool = self.run(self._asynchronous.drop)
        self.close()
        return dropped


class SyncKnowledgeBase(Opened, of=KnowledgeBase):
    """`KnowledgeBase` behind plain functions, callable from any thread; `add` and `with_…` return a new one."""


class SyncJSONKBRetriever(Opened, of=JSONKBRetriever):
    """`JSONKBRetriever` behind plain functions, callable from any thread."""


def __getattr__(name: str) -> Any:
    part = name.removeprefix("Sync")
    if name == part or part not in PARTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return synchronous_class(getattr(import_module(f"semlex.retriever.{part.lower()}"), part))


connect_sync = SyncClient
__all__ = [name for name in globals() if name.startswith("Sync")] + [f"Sync{name}" for name in PARTS]
__all__ += ["connect_sync", "without_await"]
