"""One HTTP client for every server of models: JSON in, JSON out, with retries and without surprises.

Three things decide its form. A socket's time-out bounds one read, not an answer that arrives byte by byte nor the
look-up of a host's name, so every attempt runs in a thread that is left behind when its time is over. Waiting ends at
once when nobody waits for the result any more. And what a server says about an error may repeat what was sent to it, so
messages quote only names of a fixed list.
"""

from __future__ import annotations

import json
import logging
import random
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar, cast

from semlex.clock import SYSTEM, Clock
from semlex.errors import ConfigurationError, ModelError, ModelServerError
from semlex.forks import drop, new_lock, renew_after_fork
from semlex.models import cancellation
from semlex.models.http_refusals import REMEDIES, TOO_SLOW, Failure, Response, asked_wait, failure_of, quoted
from semlex.models.http_stream import Limits, Stream
from semlex.models.model_names import host_at
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Result = TypeVar("Result")
Success = TypeVar("Success")

CONNECT_SECONDS = 10.0
# Waits between attempts double from the first to the last of these; each is shortened by chance, so that clients that
# failed together do not come back together.
FIRST_WAIT_SECONDS = 0.5
LAST_WAIT_SECONDS = 30.0
# A server that asks for more (Retry-After) gets no further attempt: whoever waits should decide that.
MAX_WAIT_SECONDS = 60.0
# 2,048 vectors of 4,096 numbers in decimal are about 180 MB, more than any server sends at once.
MAX_ANSWER_BYTES = 256 * 1024 * 1024
POLL_SECONDS = 0.1
# Searches that ask one server at the same time. Each waits for the server, not for this machine.
CALLS_AT_ONCE = 32


class ModelServer:
    """One provider's HTTP endpoint: JSON in, JSON out, with retries.

    A request is tried again after a broken connection, a time-out, and the statuses 408, 429, 500, 502, 503 and 504;
    ``Retry-After`` is honoured up to 60 s. A call therefore takes at most ``attempts * (timeout + 60)`` seconds.
    Redirects are never followed (the key would go along), an environment's proxies are used except for this machine
    itself. Nothing is sent before the first request; safe for several threads.

    Args:
        base_url: Address in front of every path, ``http`` or ``https``, without user, password, query or fragment.
        timeout: Most seconds of one attempt, from the look-up of the host to the answer's last byte.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        key_header: str = "Authorization",
        key_variable: str | None = None,
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
        self._client: Any = None
        renew_after_fork(self)
        self._closed = False
        self._lock = new_lock()

    def __repr__(self) -> str:
        return f"ModelServer({self.base_url!r})"

    def post(self, path: str, body: Mapping[str, object], max_bytes: int | None = None) -> Any:
        """Sends one request and waits for its answer.

        Args:
            max_bytes: Most bytes of the answer; None for `MAX_ANSWER_BYTES`.
        """
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        return self._parse(path, self._asked(path, lambda: self._try(path, content, max_bytes or MAX_ANSWER_BYTES)))

    def stream(self, path: str, body: Mapping[str, object], limits: Limits) -> Generator[bytes]:
        """Sends one request and hands on its answer as it arrives.

        Until the first byte is there it is tried again like any other, but where the server takes the request and is
        silent: somebody waits for the answer. Afterwards it is not. Closing the iterator gives the connection up.

        Yields:
            The answer's bytes, in pieces of any size.
        """
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()

        def begin() -> Stream | Response | Failure:
            stream = Stream(self._open(), self.base_url + path, content, limits, self._clock)
            first = stream.begin(self._timeout)
            return stream if first is None else first

        stream = self._asked(path, begin, is_slow_tried_again=False)
        try:
            for part in stream:
                self._check_open()
                if isinstance(part, Failure):
                    raise ModelServerError(f"{self.host}{path} {part.what}; {part.remedy}")
                yield part
        finally:
            stream.close()

    def _asked(
        self, path: str, attempt: Callable[[], Success | Response | Failure], *, is_slow_tried_again: bool = True
    ) -> Success:
        """What an attempt that succeeds gives; a response of success counts as that."""
        for number in range(1, self._attempts + 1):
            cancellation.check()
            answer = attempt()
            if not isinstance(answer, Response | Failure) or answer.succeeded:
                return cast("Success", answer)
            ends = isinstance(answer, Failure) and answer.is_slow and not is_slow_tried_again
            if ends or not answer.retried or number == self._attempts:
                break
            _pause(self._wait_seconds(path, answer, number), self._clock)
        if isinstance(answer, Failure):
            raise ModelServerError(f"{self.host}{path} {answer.what}; {answer.remedy}")
        raise self._refusal(path, cast("Response", answer))

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Calls a function that talks to this server for every item, several at a time."""
        if len(items) <= 1 or self._concurrency == 1:
            return [function(item) for item in items]
        cancellation.check()
        given_up = threading.Event()

        def call(item: Item) -> Result:
            # Stands in for the caller's flag, which the loop below passes on.
            with cancellation.abandoned_by(given_up):
                return function(item)

        pool = ThreadPoolExecutor(min(self._concurrency, len(items)), thread_name_prefix="semlex-model-server")
        try:
            futures = [pool.submit(copy_context().run, call, item) for item in items]
            while True:
                done, pending = wait(futures, POLL_SECONDS, FIRST_EXCEPTION)
                failed = next((future.exception() for future in futures if future in done and future.exception()), None)
                if failed is not None:
                    raise failed
                if not pending:
                    return [future.result() for future in futures]
                cancellation.check()
        finally:
            given_up.set()
            pool.shutdown(cancel_futures=True)

    def close(self) -> None:
        """Closes the connections; a second call does nothing."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _after_fork(self) -> None:
        drop(self._client)  # its connections are the parent's
        self._client = None

    def _try(self, path: str, content: bytes, max_bytes: int) -> Response | Failure:
        """One attempt: an answer of whatever status, or what stood in its way."""
        client = self._open()
        outcome: list[Response | Failure] = []
        done = threading.Event()
        deadline = self._clock.monotonic() + self._timeout

        def exchange() -> None:
            try:
                outcome.append(self._exchange(client, path, content, max_bytes, deadline))
            finally:
                done.set()

        threading.Thread(target=exchange, name="semlex-model-request", daemon=True).start()
        _wait(done, deadline, self._clock)
        self._check_open()
        return outcome[0] if outcome else TOO_SLOW

    def _exchange(self, client: Any, path: str, content: bytes, max_bytes: int, deadline: float) -> Response | Failure:
        try:
            with client.stream("POST", self.base_url + path, content=content) as response:
                body = bytearray()
                for part in response.iter_bytes():
                    body += part
                    if len(body) > max_bytes:
                        what = f"sent more than the {max_bytes} bytes that are read"
                        return Failure(what, "lower batch_size, or check the address", retried=False)
                    if self._clock.monotonic() > deadline:
                        return TOO_SLOW
                return Response(response.status_code, response.headers.get("Retry-After"), bytes(body))
        except Exception as error:  # noqa: BLE001 (whatever goes wrong here must reach the thread that waits)
            return failure_of(error)

    def _check_open(self) -> None:
        if self._closed:
            raise ModelError(f"the connection to {self.host} was closed; make a new one")

    def _open(self) -> Any:
        with self._lock:
            self._check_open()
            if self._client is None:
                import httpx2  # noqa: PLC0415 (a tenth of a second)

                if self._has_key and not self.is_local and self.base_url.startswith("http:"):
                    logger.warning("the key for %s travels without encryption; use https", self.host)
                try:
                    self._client = httpx2.Client(
                        headers=self._headers,
                        timeout=httpx2.Timeout(self._timeout, connect=min(self._timeout, CONNECT_SECONDS)),
                        limits=httpx2.Limits(max_keepalive_connections=max(self._concurrency, CALLS_AT_ONCE)),
                        trust_env=not self.is_local,
                    )
                except (ImportError, ValueError, httpx2.InvalidURL) as error:
                    raise ConfigurationError(
                        f"the environment's proxy settings cannot be used ({type(error).__name__}); check HTTP_PROXY, "
                        f"HTTPS_PROXY and ALL_PROXY, or add {self.host} to NO_PROXY"
                    ) from None  # the cause may show a proxy's password
            return self._client

    def _parse(self, path: str, answer: Response) -> Any:
        try:
            return json.loads(answer.body)
        except (ValueError, RecursionError):
            pass
        # Raised outside, because the cause would hold the answer.
        raise ModelServerError(
            f"{self.host}{path} answered with something that is not JSON ({len(answer.body)} bytes); check the address",
            status=answer.status,
        )

    def _wait_seconds(self, path: str, answer: Response | Failure, attempt: int) -> float:
        """How long to wait before the next attempt."""
        asked = asked_wait(answer.retry_after) if isinstance(answer, Response) else None
        if asked is None:
            longest = min(LAST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** (attempt - 1))
            return longest * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)
        if asked > MAX_WAIT_SECONDS and isinstance(answer, Response):
            raise ModelServerError(
                f"{self.host}{path} answered {answer.status}{quoted(answer.body)} and asks to wait "
                f"{min(asked, 1e9):.0f} s, more than the {MAX_WAIT_SECONDS:.0f} s that are waited; try again later",
                status=answer.status,
            )
        return asked

    def _refusal(self, path: str, answer: Response) -> ModelServerError:
        status = answer.status
        if status in {401, 403}:
            place = "api_key" if self._key_variable is None else f"the environment variable {self._key_variable}"
            remedy = f"check the key in {place}" if self._has_key else f"it wants a key: set {place}"
        elif 300 <= status < 400:  # noqa: PLR2004 (the statuses of redirection)
            remedy = "redirects are not followed; give the address that it leads to"
        else:
            remedy = REMEDIES.get(status, "look at the server's own log" if self.is_local else "try again later")
        return ModelServerError(f"{self.host}{path} answered {status}{quoted(answer.body)}; {remedy}", status=status)


def _wait(event: threading.Event, deadline: float, clock: Clock) -> None:
    """Waits for an event until a deadline; ends early, with an error, when nobody waits for the result any more."""
    while not clock.wait(event, max(0.0, min(POLL_SECONDS, deadline - clock.monotonic()))):
        cancellation.check()
        if clock.monotonic() >= deadline:
            return


def _pause(seconds: float, clock: Clock) -> None:
    _wait(threading.Event(), clock.monotonic() + seconds, clock)
