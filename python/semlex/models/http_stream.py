"""An answer that arrives in pieces: bounded in bytes, in pauses and in time.

It is read in a thread of its own, like every attempt of `semlex.models.http_client`: a look-up of a host that hangs, or
a server that sends a byte now and then, is left behind when its time is over.
"""

from __future__ import annotations

import queue
import threading
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from semlex.models import cancellation
from semlex.models.http_refusals import TOO_SLOW, Failure, Response, failure_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semlex.clock import Clock

POLL_SECONDS = 0.1
# Pieces that wait to be read; then the server waits.
MAX_WAITING = 64
MAX_REFUSAL_BYTES = 1024 * 1024
_END = object()


@dataclass(frozen=True, slots=True)
class Limits:
    """Of an answer in pieces.

    Attributes:
        max_bytes: Most bytes in all.
        pause: Most seconds between two pieces.
        seconds: Most seconds from the first piece to the last.
    """

    max_bytes: int = 4 * 1024 * 1024
    pause: float = 60.0
    seconds: float = 300.0


class Stream:
    """One request, whose answer is read by iterating once."""

    def __init__(self, client: Any, url: str, content: bytes, limits: Limits, clock: Clock) -> None:
        self._limits, self._clock, self._begun = limits, clock, clock.monotonic()
        self._parts: queue.Queue[Any] = queue.Queue(MAX_WAITING)
        self._stopped = threading.Event()
        run = copy_context().run
        threading.Thread(
            target=lambda: run(self._receive, client, url, content), name="semlex-model-stream", daemon=True
        ).start()

    def begin(self, seconds: float) -> Response | Failure | None:
        """Waits for the answer's beginning.

        Args:
            seconds: Maximum time since the request was sent.
        """
        first: Any = TimeoutError
        try:
            first = self._next(self._begun + seconds)
        finally:
            if first is not None:
                self.close()
        if first is None:
            return None
        return first if isinstance(first, Response | Failure) else TOO_SLOW

    def __iter__(self) -> Iterator[bytes | Failure]:
        """The pieces; a failure is the last of them."""
        end = self._clock.monotonic() + self._limits.seconds
        left = self._limits.max_bytes
        while True:
            part = self._next(min(end, self._clock.monotonic() + self._limits.pause))
            if part is _END:
                return
            if isinstance(part, bytes):
                left -= len(part)
                if left >= 0:
                    yield part
                    continue
                part = Failure(
                    f"sent more than the {self._limits.max_bytes} bytes that are read", "choose another model"
                )
            elif not isinstance(part, Failure):
                is_over = self._clock.monotonic() >= end
                what = "did not end in time" if is_over else "stopped in the middle of its answer"
                part = Failure(what, "raise timeout, or look at the server's load")
            self.close()
            yield part
            return

    def close(self) -> None:
        """Gives the answer up; the thread ends with its next piece."""
        self._stopped.set()

    def _next(self, deadline: float) -> Any:
        """The next piece; `TimeoutError` where none came in time."""
        while True:
            try:
                return self._parts.get(timeout=max(0.001, min(POLL_SECONDS, deadline - self._clock.monotonic())))
            except queue.Empty:
                cancellation.check()
                if self._clock.monotonic() >= deadline:
                    return TimeoutError

    def _receive(self, client: Any, url: str, content: bytes) -> None:
        try:
            with client.stream("POST", url, content=content) as response:
                refusal = response.status_code >= 300  # noqa: PLR2004 (the statuses of success)
                if not refusal:
                    self._put(None)
                body = bytearray()
                for part in response.iter_bytes():
                    if refusal:
                        body += part
                    else:
                        self._put(part)
                    if self._stopped.is_set() or len(body) > MAX_REFUSAL_BYTES:
                        break
                retry_after = response.headers.get("Retry-After")
                self._put(Response(response.status_code, retry_after, bytes(body)) if refusal else _END)
        except Exception as error:  # noqa: BLE001 (whatever goes wrong here must reach the thread that waits)
            self._put(failure_of(error))

    def _put(self, part: object) -> None:
        while not self._stopped.is_set():
            try:
                self._parts.put(part, timeout=POLL_SECONDS)
            except queue.Full:
                continue
            return
