"""Exit codes of the command line."""

from __future__ import annotations

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

OTHER, REFUSED, DATABASE, MODEL, SOME_FILES, NO_COLLECTION, DEADLINE = 1, 2, 3, 4, 5, 6, 7

EXIT_CODES = """\b
Exit codes:
    0  done
    1  an error of another kind, a pipe that was closed, an answer other than yes
    2  the arguments or the input were refused
    3  the database
    4  a model, or vectors that are not there
    5  done, but some files could not be read (they are listed)
    6  no such collection
    7  nothing had answered at the deadline, or a job had not ended
  130  interrupted (Ctrl-C)
"""

# The first class that an error belongs to decides.
_CODES: tuple[tuple[type[SemlexError], int], ...] = (
    (CollectionNotFoundError, NO_COLLECTION),
    (SearchTimeoutError, DEADLINE),
    (JobTimeoutError, DEADLINE),
    (ModelError, MODEL),
    (MissingExtraError, MODEL),
    (EmbeddingsMissingError, MODEL),
    (ValidationError, REFUSED),
    (DuplicateError, REFUSED),
    (DumpError, REFUSED),
    (ConfigurationError, REFUSED),
    (StoreError, DATABASE),
)


def exit_code(error: SemlexError) -> int:
    """The exit code that an error becomes."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), OTHER)
