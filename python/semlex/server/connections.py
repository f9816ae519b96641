"""Limit how long clients may take to send requests and to receive answers, in uvicorn's HTTP/1.1 protocol."""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING, Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from semlex.clock import SYSTEM, Clock
from semlex.server.problems import Problem

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from semlex.server.options import ServeOptions


logger = logging.getLogger("semlex.server")

NO_REQUEST = (
    "the request cannot be read as HTTP/1.1; its head must have at most 64 KiB, one header Host, and "
    "either a Content-Length that is a number or a Transfer-Encoding"
)
# Of the request line and all headers; a path with its parameters has most of them.
MAX_HEAD_BYTES = 64 * 1024
# Of a body whose request was answered before it was read: so much is read and thrown away.
MAX_REST_BYTES = 64 * 1024 * 1024
# What a client takes of an answer, at least, in `send_seconds`; the last piece may be shorter.
MIN_TAKEN_BYTES = 16 * 1024


class Lingering:
    """A transport whose `close` first waits for the rest of the request's body."""

    def __init__(self, transport: asyncio.Transport, protocol: LimitedProtocol) -> None:
        self._transport, self._protocol = transport, protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return whether the connection sends nothing more."""
        return self._protocol.lingers or self._transport.is_closing()

    def close(self) -> None:
        """End the answer, then close the connection; if the request's body is incomplete, first wait for the rest."""
        if self._protocol.lingers or not self._protocol.begin_lingering():
            self._transport.close()
            return
        self._transport.write_eof()
        self._transport.resume_reading()


class OneLength(h11.Connection):
    """An HTTP parser that refuses requests which give their body's length twice: a proxy could read another length."""

    def next_event(self) -> Any:
        """Return the next event of the parser; refuse a request with two lengths."""
        event = super().next_event()
        if isinstance(event, h11.Request) and {b"content-length", b"transfer-encoding"} <= dict(event.headers).keys():
            raise h11.RemoteProtocolError("the request has both Content-Length and Transfer-Encoding")
        return event


# Uvicorn itself waits without limit for the end of a request's head, for the rest of a refused body, and for a client
# that does not read its answer: a thousand slow clients would hold a thousand connections. It also closes a connection
# while a body is still arriving. The system then resets the connection, and a client that sends everything before it
# reads never sees why it was refused.
class LimitedProtocol(H11Protocol):
    """The HTTP/1.1 protocol with time limits for heads, refused bodies and answers, and a maximum of connections."""

    # For a head, from its first byte; and for the rest of a body whose request was answered before it was read.
    head_seconds = 10.0
    send_seconds = 30.0  # in which a client takes some of what was sent
    most_connections = 1024
    clock: Clock = SYSTEM
    _head_timer: asyncio.TimerHandle | None = None
    _send_timer: asyncio.TimerHandle | None = None
    _rest_bytes = 0
    lingers = False

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = OneLength(h11.SERVER, MAX_HEAD_BYTES)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first head; drop the connection if there are too many."""
        super().connection_made(cast("asyncio.Transport", Lingering(transport, self)))
        if len(self.connections) > self.most_connections:
            transport.abort()
            return
        # Writing pauses as soon as something waits to be taken: the end of an answer has its time, too.
        transport.set_write_buffer_limits(0)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limits."""
        self._end()
        self._end_sending()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; the time limit runs while a head or the rest of a refused body is incomplete."""
        was_refused = self._is_refused
        if was_refused or self.lingers:
            self._rest_bytes += len(data)
            if self._rest_bytes > MAX_REST_BYTES:
                self._give_up()
                return
        else:
            self._rest_bytes = 0
        if self.lingers:
            self._throw_away(data)
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if was_refused:
                # The rest was thrown away. What follows has a time of its own; uvicorn gives it none here.
                self._end()
            if was_refused or self.conn.trailing_data[0]:
                self._begin()
        elif not self._is_refused:
            self._end()

    def on_response_complete(self) -> None:
        """Start the time limit again if the next head has begun or the rest of a refused body is still arriving."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._is_refused or (self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]):
            self._begin()

    def pause_writing(self) -> None:
        """Start the time limit in which the client must read some of its answer."""
        super().pause_writing()
        self._await_taking()

    def resume_writing(self) -> None:
        """Cancel the time limit, because the client has read everything."""
        self._end_sending()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse an unreadable request, and close the connection."""
        del msg
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # an answer has begun
            self.transport.close()
            return
        request_id = secrets.token_hex(8)
        headers = {"Connection": "close", "X-Request-ID": request_id}
        answer = Problem(400, NO_REQUEST, headers=headers).response(request_id)
        head = h11.Response(status_code=400, headers=answer.raw_headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        values = {"request_id": request_id, "status": 400, "address": self.client[0] if self.client else "-"}
        logger.info("request %s: 400 (%s), %s", request_id, values["address"], NO_REQUEST, extra=values)
        self.transport.close()

    def begin_lingering(self) -> bool:
        """Wait for the rest of the body before the connection is closed; return whether more is to come."""
        self.lingers = self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing()
        if self.lingers:
            self._begin()
        return self.lingers

    def _throw_away(self, data: bytes) -> None:
        try:
            self.conn.receive_data(data)
            while isinstance(self.conn.next_event(), h11.Data):
                pass
        except h11.RemoteProtocolError:
            self.transport.close()
        if self.conn.their_state is not h11.SEND_BODY:
            self.transport.close()

    @property
    def _is_refused(self) -> bool:
        """Return whether a request was answered before its body had arrived."""
        return self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE

    def _await_taking(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._send_timer = self.clock.call_later(self.send_seconds, self._look_at_taking, waiting)

    def _look_at_taking(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < MIN_TAKEN_BYTES:
            self.transport.abort()
        else:
            self._await_taking()

    def _end_sending(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None

    def _begin(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.clock.call_later(self.head_seconds, self._give_up)

    def _end(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        self.transport.abort()


def uvicorn_options(options: ServeOptions, clock: Clock = SYSTEM) -> dict[str, Any]:
    """Return uvicorn's options: `LimitedProtocol` with the server's limits, and its logs and headers turned off."""
    limits = {
        "clock": clock,
        "head_seconds": options.head_seconds,
        "send_seconds": options.send_seconds,
        "most_connections": options.connections,
    }
    protocol = type("Protocol", (LimitedProtocol,), limits)
    shown = dict.fromkeys(("access_log", "server_header", "proxy_headers"), False)
    return {"http": protocol, "ws": "none", "log_config": None, **shown}


LOOK_SECONDS = 0.05
# Beyond the time of requests in progress: what does not end though its client is gone is cancelled then.
MORE_SECONDS = 5
# In the state of each request: the event that it stops, for what would wait for ever.
STOPPING = "stopping"


class StoppingServer(uvicorn.Server):
    """A uvicorn server that, when it stops, drops requests that take too long, as if their clients had disconnected."""

    def __init__(self, config: uvicorn.Config, seconds: float, clock: Clock = SYSTEM) -> None:
        # Uvicorn itself would cancel it: a status 500 and a trace in the log, of a stop that was wanted.
        config.timeout_graceful_shutdown = int(seconds) + MORE_SECONDS
        super().__init__(config)
        self._seconds, self._clock, self._is_urged = seconds, clock, False
        self._stopping = asyncio.Event()
        self._retiring: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, and give every request the event that is set when the server stops."""
        self.lifespan.state[STOPPING] = self._stopping
        await super().startup(sockets)

    def retire(self) -> None:
        """Take no new connections, serve the open ones until they end, then stop."""
        if self._retiring is None:
            self._retiring = asyncio.ensure_future(self._retire())

    async def _retire(self) -> None:
        for server in self.servers:
            server.close()
        self._stopping.set()
        end = self._clock.monotonic() + self._seconds
        # A connection ends with its next answer, or when it has been idle for long enough.
        while self.server_state.connections and self._clock.monotonic() < end and not self.should_exit:
            await self._clock.sleep(LOOK_SECONDS)
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at the first signal; end the requests in progress at the second one."""
        if self.should_exit:
            self._is_urged = True
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the server; requests in progress may end first."""
        self._stopping.set()
        ending = asyncio.ensure_future(self._end())
        try:
            await super().shutdown(sockets)
        finally:
            ending.cancel()

    async def _end(self) -> None:
        """Close the connections that are still open when the time for requests in progress is over."""
        end = self._clock.monotonic() + self._seconds
        while self._clock.monotonic() < end and not self._is_urged:  # a signal's handler sets no event
            await self._clock.sleep(LOOK_SECONDS)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
