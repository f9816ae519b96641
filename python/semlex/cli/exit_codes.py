"""Exit codes of the command line, and the handling of signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from semlex.errors import (
    CollectionNotFoundError,
    ConfigurationError,
    DumpError,
    DuplicateError,
    EmbeddingsMissingError,
    JobTimeoutError,
    MissingExtraError,
    ModelError,
    SearchTimeoutError,
    SemlexError,
    StoreError,
    ValidationError,
)

OTHER, REFUSED, DATABASE, MODEL, SOME_FILES, NO_COLLECTION, DEADLINE, INTERRUPTED = 1, 2, 3, 4, 5, 6, 7, 130
STOPPED = 128  # plus the number of the signal that ended the process

# The one table, of the help and of docs/reference/errors.md.
MEANINGS = {
    0: "done",
    OTHER: "another error, a closed pipe, or an answer other than yes",
    REFUSED: "the arguments or the input were refused",
    DATABASE: "the database cannot be reached, refuses, or fails",
    MODEL: "a model cannot be used, or a package or vectors are missing",
    SOME_FILES: "done, but some files were not read, rows not stored or chunks not described; all are listed",
    NO_COLLECTION: "the collection does not exist",
    DEADLINE: "no answer before the deadline, or a job that has not ended",
    INTERRUPTED: "interrupted with Ctrl-C",
}
EXIT_CODES = "\b\nExit codes:\n" + "\n".join(f"{code:5}  {meaning}" for code, meaning in MEANINGS.items()) + "\n"

# The first row with a class of the error decides.
_CODES: tuple[tuple[tuple[type[SemlexError], ...], int], ...] = (
    ((CollectionNotFoundError,), NO_COLLECTION),
    ((SearchTimeoutError, JobTimeoutError), DEADLINE),
    ((ModelError, MissingExtraError, EmbeddingsMissingError), MODEL),
    ((ValidationError, DuplicateError, DumpError, ConfigurationError), REFUSED),
    ((StoreError,), DATABASE),
)


def exit_code(error: SemlexError) -> int:
    """Return the exit code for an error."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), OTHER)


def on_signals(received: list[int], end: Callable[[], object]) -> None:
    """At the first Ctrl-C or SIGTERM, note it in `received` and call `end`; at the second one, end the process."""
    import asyncio

    def stop(number: int) -> None:
        if received:
            os._exit(STOPPED + number)
        received.append(number)
        end()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
