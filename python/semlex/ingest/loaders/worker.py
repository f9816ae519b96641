"""Read files that may crash a parser in a separate process."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from typing import IO, Any, Self, cast

from semlex.clock import SYSTEM, Clock
from semlex.ingest.loaders.base import LoadedDocument, LoadError, Record
from semlex.options.collection import MAX_FILE_BYTES
from semlex.types.documents import StoredPlace

READER = "semlex.ingest.loaders.office:read"
MAX_SECONDS = 60.0  # a manual of a thousand pages takes ten
START_SECONDS = 120.0  # python starts and imports kreuzberg; on a busy machine that takes a while
IDLE_SECONDS = 20.0
# Beside what it takes itself: a hundred times the largest file that is read at all would be more than machines have.
MAX_MEMORY = 2 * 1024**3
MAX_TEXT_BYTES = 64 * 1024**2
_MAX_FILE_BYTES = 64 * 1024**2  # kreuzberg unpacks a library of 10 MB
_LENGTHS = struct.Struct(">IQ")
# What comes of a pipe that ends, and of nonsense that it carries.
_BROKEN = (OSError, EOFError, ValueError, TypeError)
_READY, _RECEIVED = b"r", b"c"
_WATCH_SECONDS = 0.1
_HEADER = ("structure", "title", "metadata", "pages", "encoding", "has_lines")
# What allocators say before they abort: Rust's, and C++'s.
_OUT_OF_MEMORY = (b"memory allocation of", b"bad_alloc", b"MemoryError")


# The process starts with the first such file and reads the next ones too. Standard input and output carry frames: a
# JSON header and bytes, each after its length. It ends when its input is closed, so it never outlives its parent.
class Worker:
    """Starts the reading process and sends it files; the process may use `max_memory` bytes more than at its start."""

    def __init__(
        self,
        reader: str = READER,
        *,
        max_seconds: float = MAX_SECONDS,
        max_memory: int = MAX_MEMORY,
        clock: Clock = SYSTEM,
    ) -> None:
        self._reader = reader
        self._max_seconds = max_seconds
        self._max_memory = max_memory
        self._clock = clock
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: IO[bytes] | None = None
        self._folder = ""
        self._idle: threading.Event | None = None  # set when another file ends the idle time
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def pid(self) -> int | None:
        """The process id, or None if no process runs."""
        return None if self._process is None else self._process.pid

    def read(self, name: str, data: bytes) -> LoadedDocument:
        """Return the text of a file that the process reads; one file at a time, from any thread."""
        with self._lock:
            self._end_idling()
            try:
                return self._read(name, data)
            finally:
                self._idle = threading.Event()
                threading.Thread(target=self._close_unless, args=(self._idle,), daemon=True).start()

    def close(self) -> None:
        """End the process; the next file starts a new one."""
        with self._lock:
            self._end_idling()
            self._end()

    def _close_unless(self, used: threading.Event) -> None:
        if not self._clock.wait(used, IDLE_SECONDS):
            self.close()

    def _end_idling(self) -> None:
        if self._idle is not None:
            self._idle.set()
            self._idle = None

    def _read(self, name: str, data: bytes) -> LoadedDocument:
        if self._process is not None and self._process.poll() is not None:
            self._end()
        is_new = self._process is None
        process = self._process or self._start()
        was_received = False
        watch = _Watch(process, self._clock, self._max_seconds, self._max_memory)
        with watch, contextlib.suppress(*_BROKEN):
            stdin, stdout = _pipes(process)
            _write_frame(stdin, {"name": name}, data)
            was_received = stdout.read(1) == _RECEIVED
            header, text = _read_frame(stdout)
            return _loaded(header, text)
        # A process that somebody ended between two files: not this one's fault.
        said = self._end()
        if not was_received and not is_new and not watch.reason:
            return self._read(name, data)
        if watch.reason == "too_slow":
            seconds = f"{self._max_seconds:g} s"
            raise LoadError("too_slow", f"it was not read within {seconds}: split it, or store it as text")
        if watch.reason == "too_big" or any(mark in said for mark in _OUT_OF_MEMORY):
            raise _too_big()
        raise LoadError("parser_failed", f"the reader of {name} files failed: open the file and save it again")

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the process and wait until it can read."""
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        # Of its own: kreuzberg loads a library from the temporary folder, where others might have put theirs.
        self._folder = tempfile.mkdtemp(prefix="semlex-worker-")
        # -P: the folder that a command runs in may hold modules of others.
        command = [sys.executable, "-P", "-m", __spec__.name, self._reader, str(self._max_memory), self._folder]
        environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), self._folder)}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._messages, env=environment)
        self._process = process
        with _Watch(process, self._clock, START_SECONDS, self._max_memory) as watch:
            _pipes(process)[1].read(1)
        if watch.reason:
            self._end()
            raise LoadError("too_slow", f"the reader did not start within {START_SECONDS:g} s: index the file again")
        return process

    def _end(self) -> bytes:
        """End the process and return its last output, which may quote a text and must not be shown."""
        process, messages = self._process, self._messages
        self._process = self._messages = None
        if process is None or messages is None:
            return b""
        process.kill()
        process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        for pipe in _pipes(process):
            with contextlib.suppress(OSError):  # what could not be written to it
                pipe.close()
        with messages:
            messages.seek(max(0, messages.seek(0, os.SEEK_END) - 4096))
            return messages.read()

    def _forget(self) -> None:
        """Close the pipes in a forked child: the process belongs to the parent."""
        self._lock = threading.Lock()
        self._idle = None
        process, self._process, self._messages = self._process, None, None
        if process is not None:
            process.returncode = 0  # not to be waited for
            for pipe in _pipes(process):
                with contextlib.suppress(OSError):
                    os.close(pipe.fileno())


class _Watch:
    """Ends a process that takes too long or, if the system sets no limit, too much memory."""

    def __init__(self, process: subprocess.Popen[bytes], clock: Clock, seconds: float, max_memory: int) -> None:
        self.reason = ""
        self._process, self._clock, self._max_memory = process, clock, max_memory
        self._end = clock.monotonic() + seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="semlex-worker-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        memory = None if sys.platform == "linux" else _memory_of(self._process.pid)
        while (left := self._end - self._clock.monotonic()) > 0:
            if self._clock.wait(self._done, left if memory is None else min(left, _WATCH_SECONDS)):
                return
            if memory is not None and memory() > self._max_memory:
                self.reason = "too_big"
                self._process.kill()
                return
        if not self._done.is_set():
            self.reason = "too_slow"
            self._process.kill()


WORKER = Worker()


def _memory_of(pid: int) -> Callable[[], int] | None:
    """Return a function that measures the memory of a process in bytes; None without psutil."""
    try:
        import psutil  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415 - of an extra
    except ImportError:
        return None

    return lambda: int(psutil.Process(pid).memory_info().rss) if psutil.pid_exists(pid) else 0


def _pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    return cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)


def _too_big() -> LoadError:
    return LoadError("too_big", "it takes too much memory to read, or has too much text: split it")


def _write_frame(stream: IO[bytes], header: Mapping[str, Any], data: bytes) -> None:
    head = json.dumps(header).encode()
    stream.write(_LENGTHS.pack(len(head), len(data)) + head)
    stream.write(data)
    stream.flush()


def _read_frame(stream: IO[bytes], max_data: int = MAX_TEXT_BYTES) -> tuple[dict[str, Any], bytes]:
    """Read a frame; raise EOFError if the other process ended or wrote something else."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        raise EOFError
    head_bytes, data_bytes = _LENGTHS.unpack(lengths)
    if head_bytes > MAX_TEXT_BYTES or data_bytes > max_data:
        raise EOFError
    head, data = stream.read(head_bytes), stream.read(data_bytes)
    if len(head) < head_bytes or len(data) < data_bytes:
        raise EOFError
    return json.loads(head), data


def _loaded(header: Mapping[str, Any], text: bytes) -> LoadedDocument:
    if "code" in header:
        raise LoadError(header["code"], header["message"])
    records = [Record(start, end, place=StoredPlace.of(place)) for start, end, place in header["records"]]
    return LoadedDocument(text.decode(), **{**header, "records": records})


def _answer(read: Callable[[str, bytes], LoadedDocument], name: str, data: bytes) -> tuple[dict[str, Any], bytes]:
    try:
        loaded = read(name, data)
        text = loaded.text.encode()
        if len(text) > MAX_TEXT_BYTES:
            raise _too_big()  # noqa: TRY301
    except LoadError as error:
        return {"code": error.code, "message": error.message}, b""
    except MemoryError:
        return {"code": "too_big", "message": _too_big().message}, b""
    except Exception as error:  # noqa: BLE001 - a parser may raise anything
        message = f"it is damaged, or not a {name} file ({type(error).__name__}): open it and save it again"
        return {"code": "parser_failed", "message": message}, b""
    header = {name: getattr(loaded, name) for name in _HEADER}
    return header | {"records": [(one.start, one.end, one.place.as_json()) for one in loaded.records]}, text


def _limit(max_memory: int) -> None:
    """Limit the memory of this process on Linux, and the size of files that it writes."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - not on Windows

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_FILE_BYTES, _MAX_FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with open("/proc/self/statm") as file:  # noqa: PTH123 - the first number: pages that are mapped
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + max_memory, taken + max_memory))


def main(reader: str, max_memory: str, folder: str) -> None:
    """Read files until the input is closed; this runs in the worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a parser prints is not a frame
    module, _, function = reader.partition(":")
    read = getattr(importlib.import_module(module), function)
    importlib.import_module("kreuzberg")  # before the limit is counted from here
    _limit(int(max_memory))
    answers.write(_READY)
    answers.flush()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            header, data = _read_frame(sys.stdin.buffer, MAX_FILE_BYTES)
            answers.write(_RECEIVED)
            answers.flush()
            _write_frame(answers, *_answer(read, header["name"], data))
    shutil.rmtree(folder, ignore_errors=True)  # the parent is gone, or does so as well


if __name__ == "__main__":
    main(*sys.argv[1:])
