"""One HTTP client for all model servers: JSON in, JSON out, with retries."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from weakref import finalize

from semlex.clock import SYSTEM, Clock
from semlex.errors import ConfigurationError, ModelError, ModelServerError
from semlex.forks import drop, new_lock, renew_after_fork
from semlex.models import cancellation
from semlex.models.model_names import host_at
from semlex.validation import check_range

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")

CONNECT_SECONDS = 10.0
# Waits between attempts double from the first to the last of these; each is shortened at random, so that clients that
# failed together do not come back together.
FIRST_WAIT_SECONDS = 0.5
LAST_WAIT_SECONDS = 30.0
# A server that asks for more (Retry-After) gets no further attempt: the caller should decide that.
MAX_WAIT_SECONDS = 60.0
# 2,048 vectors of 4,096 numbers in decimal are about 180 MB, more than any server sends at once.
MAX_ANSWER_BYTES = 256 * 1024 * 1024
MAX_REFUSAL_BYTES = 1024 * 1024
# Searches that query one server at the same time. Each waits for the server, not for this machine.
CALLS_AT_ONCE = 32
CLOSE_SECONDS = 1.0
FIRST_REDIRECTION, FIRST_ERROR = 300, 400
RETRIED_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
# Names of errors that the servers document. Our messages quote nothing else of an answer, because it may repeat a text
# or a key that was sent.
QUOTED_NAMES = frozenset(
    {
        *("authentication_error", "billing_hard_limit_reached", "context_length_exceeded", "insufficient_quota"),
        *("invalid_api_key", "invalid_request_error", "invalid_type", "invalid_value", "model_not_found"),
        *("not_found_error", "permission_error", "rate_limit_exceeded", "server_error", "unsupported_parameter"),
        *("BadRequestError", "InternalServerError", "NotFoundError", "UnprocessableEntityError"),
        *("Backend", "Empty", "Overloaded", "Tokenizer", "Unhealthy", "Validation"),
        *("DEADLINE_EXCEEDED", "FAILED_PRECONDITION", "INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND"),
        *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNAVAILABLE"),
    }
)
REMEDIES = {
    400: "check the key, the model's name, its settings, and the length of the texts",
    404: "check the address and the model's name; a local server must have fetched the model first",
    413: "lower batch_size, or shorten the texts",
    422: "check the model's name, its settings, and the length of the texts",
    429: "the server limits requests, or the account has no credit left; wait, or send less at once",
}
UNREACHABLE = "check the address, and that the server is running and can be reached from here"


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a streamed answer: bytes in all, seconds between two pieces, seconds from first to last piece."""

    max_bytes: int = 4 * 1024 * 1024
    pause: float = 60.0
    seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer of any status, or the beginning of an error that a server sent instead of a stream."""

    status: int
    retry_after: str | None
    body: bytes

    @property
    def succeeded(self) -> bool:
        """Return whether the server accepted the request."""
        return self.status < FIRST_REDIRECTION

    @property
    def retried(self) -> bool:
        """Return whether another attempt may succeed."""
        return self.status in RETRIED_STATUSES


@dataclass(frozen=True, slots=True)
class Failure:
    """Why no answer arrived: a predicate such as ``cannot be reached``, and the remedy."""

    what: str
    remedy: str
    retried: bool = True
    is_slow: bool = False  # the server took the request, and the time was over
    succeeded = False


TOO_SLOW = Failure(
    "did not answer in time", "check the server's load; or lower batch_size, raise timeout", is_slow=True
)


class ModelServer:
    """One provider's HTTP endpoint; nothing is sent before the first request, and several threads may use it."""

    def __init__(
        self,
        # Address before every path, http or https, without user, password, query or fragment.
        base_url: str,
        *,
        api_key: str | None = None,
        key_header: str = "Authorization",
        key_variable: str | None = None,
        # Maximum seconds of one attempt, from the look-up of the host to the answer's last byte. A call takes at most
        # attempts * (timeout + 60) seconds, because `Retry-After` is honoured up to 60 s.
        timeout: float = 60.0,
        attempts: int = 5,
        concurrency: int = 4,
        clock: Clock = SYSTEM,
    ) -> None:
        self.host, self.is_local = host_at(base_url)
        if api_key is not None and not (api_key.isascii() and api_key.isprintable() and api_key.strip()):
            raise ConfigurationError("api_key must be printable ASCII characters without line breaks, and not blank")
        if not 0 < timeout <= 3600:  # noqa: PLR2004 (an hour)
            raise ConfigurationError(f"timeout must be above 0 and at most 3,600 seconds; got {timeout}")
        check_range("attempts", attempts, 1, 20)
        check_range("concurrency", concurrency, 1, 64)
        self.base_url = base_url.rstrip("/")
        self._headers = {"Content-Type": "application/json", "User-Agent": "semlex"}
        if api_key is not None:
            self._headers[key_header] = f"Bearer {api_key}" if key_header == "Authorization" else api_key
        self._has_key = api_key is not None
        self._key_variable = key_variable
        self._timeout = timeout
        self._attempts = attempts
        self._concurrency = concurrency
        self._clock = clock
        self._requests: _Requests | None = None
        renew_after_fork(self)
        self._closed = False
        self._lock = new_lock()

    def __repr__(self) -> str:
        return f"ModelServer({self.base_url!r})"

    def post(self, path: str, body: Mapping[str, object], max_bytes: int | None = None) -> Any:
        """Send a request and return the parsed answer, of at most `max_bytes` (None: `MAX_ANSWER_BYTES`)."""
        answer = self._run(self._answer, path, _encoded(body), max_bytes or MAX_ANSWER_BYTES)
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            pass
        # Raised outside, because the cause would hold the answer.
        raise ModelServerError(
            f"{self.host}{path} answered with something that is not JSON ({len(answer.body)} bytes); check the address",
            status=answer.status,
        )

    def stream(self, path: str, body: Mapping[str, object], limits: Limits) -> Generator[bytes]:
        """Send a request and yield its answer as it arrives, in pieces of any size."""
        # Until the answer begins, a failed request is tried again, except if the server accepted it and then sends
        # nothing. Closing the iterator closes the connection.
        response = self._run(self._answer, path, _encoded(body), None)
        pieces = response.aiter_bytes()
        end, left = self._clock.monotonic() + limits.seconds, limits.max_bytes
        try:
            while (piece := self._run(self._piece, pieces, end, limits.pause)) is not None:
                if not isinstance(piece, Failure):
                    left -= len(piece)
                    if left >= 0:
                        yield piece
                        continue
                    piece = Failure(f"sent more than the limit of {limits.max_bytes} bytes", "choose another model")
                raise ModelServerError(f"{self.host}{path} {piece.what}; {piece.remedy}")
        finally:
            if not self._closed:
                self._open().submit(response.aclose())

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Call a function that uses this server for every item, several at a time."""
        if len(items) <= 1 or self._concurrency == 1:
            return [function(item) for item in items]
        cancellation.check()
        given_up = cancellation.inner_flag()

        def call(item: Item) -> Result:
            with cancellation.abandoned_by(given_up):
                return function(item)

        pool = ThreadPoolExecutor(min(self._concurrency, len(items)), thread_name_prefix="semlex-model-server")
        try:
            futures = [pool.submit(copy_context().run, call, item) for item in items]
            wait(futures, return_when=FIRST_EXCEPTION)
            failed = next((error for future in futures if future.done() and (error := future.exception())), None)
            if failed is not None:
                raise failed
            return [future.result() for future in futures]
        finally:
            given_up.set()
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Close the connections; a second call does nothing."""
        with self._lock:
            self._closed = True
            requests, self._requests = self._requests, None
        if requests is not None:
            requests.close()

    def _after_fork(self) -> None:
        if self._requests is not None:
            self._requests.close.detach()
            drop(self._requests)  # its connections are the parent's
        self._requests = None

    def _run(self, work: Callable[..., Coroutine[Any, Any, Result]], *arguments: Any) -> Result:
        cancellation.check()
        requests = self._open()
        future = requests.submit(work(*arguments))
        try:
            cancellation.wait_for(future)
            return future.result()
        except CancelledError:
            raise self._was_closed() from None
        finally:
            future.cancel()

    async def _answer(self, path: str, content: bytes, max_bytes: int | None) -> Any:
        """Return the answer of the first attempt that succeeds; without `max_bytes` its body is not read yet."""
        for number in range(1, self._attempts + 1):
            answer = await self._attempt(path, content, max_bytes)
            if self._closed:
                raise self._was_closed()
            if not isinstance(answer, Response | Failure) or answer.succeeded:
                return answer
            waits_for_silence = isinstance(answer, Failure) and answer.is_slow and max_bytes is None
            if waits_for_silence or not answer.retried or number == self._attempts:
                break
            await _pause(self._wait_seconds(path, answer, number), self._clock)
        if isinstance(answer, Failure):
            raise ModelServerError(f"{self.host}{path} {answer.what}; {answer.remedy}")
        raise self._refusal(path, answer)

    async def _attempt(self, path: str, content: bytes, max_bytes: int | None) -> Any:
        client = self._open().client
        try:
            async with self._clock.timeout(self._timeout):
                request = client.build_request("POST", self.base_url + path, content=content)
                response = await client.send(request, stream=True)
                if max_bytes is None and response.status_code < FIRST_REDIRECTION:
                    return response
                try:
                    return await _read(response, max_bytes)
                finally:
                    await response.aclose()
        except TimeoutError:
            return TOO_SLOW
        except Exception as error:  # noqa: BLE001 (its text, which may hold what was sent, must not travel on)
            return failure_of(error)

    async def _piece(self, pieces: AsyncIterator[bytes], end: float, pause: float) -> bytes | Failure | None:
        """Return the next piece of an answer, or why it cannot be read; None at the end."""
        try:
            async with self._clock.timeout(min(pause, end - self._clock.monotonic())):
                return await anext(pieces, None)
        except TimeoutError:
            is_over = self._clock.monotonic() >= end
            what = "did not end in time" if is_over else "stopped in the middle of its answer"
            return Failure(what, "raise timeout, or check the server's load")
        except Exception as error:  # noqa: BLE001 (as above)
            return failure_of(error)

    def _was_closed(self) -> ModelError:
        return ModelError(f"the connection to {self.host} was closed; make a new one")

    # Redirects are never followed, because the key would be sent along; the environment's proxies are used except for
    # this machine. Reading the certificates, which only TLS needs, takes longer than asking such a server.
    def _open(self) -> _Requests:
        with self._lock:
            if self._closed:
                raise self._was_closed()
            if self._requests is None:
                import httpx2  # noqa: PLC0415 (a tenth of a second)

                has_tls = self.base_url.startswith("https:")
                if self._has_key and not self.is_local and not has_tls:
                    logger.warning("the key for %s travels without encryption; use https", self.host)
                try:
                    client = httpx2.AsyncClient(
                        headers=self._headers,
                        timeout=httpx2.Timeout(None, connect=min(self._timeout, CONNECT_SECONDS)),
                        limits=httpx2.Limits(max_keepalive_connections=max(self._concurrency, CALLS_AT_ONCE)),
                        trust_env=not self.is_local,
                        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if self.is_local and not has_tls else True,
                    )
                except (ImportError, ValueError, httpx2.InvalidURL) as error:
                    raise ConfigurationError(
                        f"the environment's proxy settings cannot be used ({type(error).__name__}); check HTTP_PROXY, "
                        f"HTTPS_PROXY and ALL_PROXY, or add {self.host} to NO_PROXY"
                    ) from None  # the cause may show a proxy's password
                self._requests = _Requests(client)
            return self._requests

    def _wait_seconds(self, path: str, answer: Response | Failure, attempt: int) -> float:
        """Return the seconds to wait before the next attempt."""
        asked = asked_wait(answer.retry_after) if isinstance(answer, Response) else None
        if asked is None:
            longest = min(LAST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** (attempt - 1))
            return longest * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)
        if asked > MAX_WAIT_SECONDS and isinstance(answer, Response):
            raise ModelServerError(
                f"{self.host}{path} answered {answer.status}{quoted(answer.body)} and asks to wait "
                f"{min(asked, 1e9):.0f} s, more than the {MAX_WAIT_SECONDS:.0f} s that a call waits; try again later",
                status=answer.status,
            )
        return asked

    def _refusal(self, path: str, answer: Response) -> ModelServerError:
        status = answer.status
        if status in {401, 403}:
            place = "api_key" if self._key_variable is None else f"the environment variable {self._key_variable}"
            remedy = f"check the key in {place}" if self._has_key else f"the server needs a key: set {place}"
        elif FIRST_REDIRECTION <= status < FIRST_ERROR:
            remedy = "redirects are not followed; give the address that the redirect leads to"
        else:
            remedy = REMEDIES.get(status, "look at the server's own log" if self.is_local else "try again later")
        return ModelServerError(f"{self.host}{path} answered {status}{quoted(answer.body)}; {remedy}", status=status)


class _Requests:
    """An event loop, in a separate thread, on which the requests of one client run."""

    # Calls block. On the loop a time limit covers a whole attempt: the look-up of the host, slow answers, and pauses.
    # If nobody wants the result any more, the call returns at once and the request is cancelled.

    def __init__(self, client: Any) -> None:
        self.client = client
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(_LookUps())
        closed = asyncio.Event()
        thread = threading.Thread(
            target=_serve, args=(self._loop, client, closed), name="semlex-model-requests", daemon=True
        )
        # Ends running requests and closes the connections; garbage collection and exit do the same.
        self.close = finalize(self, _stop, self._loop, closed, thread)
        thread.start()

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class _LookUps(ThreadPoolExecutor):
    """Host name look-ups, each in a thread that is abandoned if it hangs, since it cannot be ended."""

    def submit(self, function: Callable[..., Result], /, *arguments: Any, **options: Any) -> Future[Result]:
        future: Future[Result] = Future()
        future.set_running_or_notify_cancel()

        def look_up() -> None:
            try:
                future.set_result(function(*arguments, **options))
            except BaseException as error:  # noqa: BLE001 (it must reach the caller)
                future.set_exception(error)

        threading.Thread(target=look_up, name="semlex-look-up", daemon=True).start()
        return future


def _serve(loop: asyncio.AbstractEventLoop, client: Any, closed: asyncio.Event) -> None:
    async def until_closed() -> None:
        await closed.wait()
        requests = asyncio.all_tasks() - {asyncio.current_task()}
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)
        await client.aclose()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(until_closed())


def _stop(loop: asyncio.AbstractEventLoop, closed: asyncio.Event, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(closed.set)
    if thread is not threading.current_thread():
        thread.join(CLOSE_SECONDS)


async def _read(response: Any, max_bytes: int | None) -> Response | Failure:
    """Read a whole answer, or without `max_bytes` only the beginning of an error sent instead of a stream."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if max_bytes is not None and len(body) > max_bytes:
            what = f"sent more than the limit of {max_bytes} bytes"
            return Failure(what, "lower batch_size, or check the address", retried=False)
        if max_bytes is None and len(body) > MAX_REFUSAL_BYTES:
            break
    return Response(response.status_code, response.headers.get("Retry-After"), bytes(body))


async def _pause(seconds: float, clock: Clock) -> None:
    await clock.sleep(seconds)


def _encoded(body: Mapping[str, object]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def failure_of(error: Exception) -> Failure:
    """Translate an error of the HTTP library without quoting its text, which may contain sent data."""
    import httpx2  # noqa: PLC0415 (loaded already)

    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
        return Failure("cannot be reached", UNREACHABLE)
    if isinstance(error, httpx2.TimeoutException):
        return TOO_SLOW
    if isinstance(error, httpx2.NetworkError | httpx2.RemoteProtocolError | httpx2.ProxyError):
        return Failure(f"broke the connection ({type(error).__name__})", UNREACHABLE)
    return Failure(f"could not be queried ({type(error).__name__})", UNREACHABLE, retried=False)


def asked_wait(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date (RFC 9110, 10.2.3); None if it is unreadable."""
    if value is None:
        return None
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value, re.ASCII):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - datetime.now(UTC)).total_seconds())


def quoted(body: bytes) -> str:
    """Return an error's codes, types and statuses that are in `QUOTED_NAMES`, in brackets; "" without any."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    outer = content if isinstance(content, dict) else {}
    inner = outer.get("error")
    found = [
        value
        for source in (inner if isinstance(inner, dict) else {}, outer)
        for value in (source.get(field) for field in ("code", "type", "status", "error_type"))
        if isinstance(value, str) and value in QUOTED_NAMES
    ]
    return f" ({', '.join(dict.fromkeys(found))})" if found else ""
