"""Every error that semlex raises, in one tree.

Most classes also derive from the builtin that callers expect. Messages name what, where and the remedy; they never
contain document text, vectors, queries or secrets. docs/reference/errors.md is written from the docstrings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from semlex.rule_messages import sentence

# More than this many field errors are kept in `ValidationError.errors` but not spelled out in its message.
SHOWN_ERRORS = 10
# Maximum number of ids in `DuplicateError.ids`.
SHOWN_DUPLICATES = 1_000
# Characters of a message; longer words, and messages, are shortened.
MAX_WORD, SHOWN_OF_WORD, MAX_MESSAGE = 1_000, 100, 20_000
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD + 1},}}")


class SemlexError(Exception):
    """Base of every error that semlex raises. Its message is bounded, however long a name or a path is.

    Remedy: Catch this class to catch them all.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(_bounded(one) if isinstance(one, str) else one for one in arguments))


def _bounded(message: str) -> str:
    """Shorten words that are longer than any name; if the message is still too long, cut out its middle."""
    if len(message) <= MAX_WORD:
        return message
    shorter = _LONG_WORD.sub(lambda found: f"{found[0][:SHOWN_OF_WORD]}…{found[0][-SHOWN_OF_WORD:]}", message)
    return shorter if len(shorter) <= MAX_MESSAGE else f"{shorter[: MAX_MESSAGE // 2]} … {shorter[-MAX_MESSAGE // 2 :]}"


def failure_reason(error: BaseException) -> str:
    """Return the text of semlex's own error, else the error's class, because other messages may quote sent texts."""
    return str(error) if isinstance(error, SemlexError) else type(error).__name__


class ConfigurationError(SemlexError, ValueError):
    """A parameter cannot be used: it has the wrong type, is out of range, or contradicts another one.

    Remedy: Change the parameter that the message names; `semlex config` shows the settings in use.
    """


class ModelServesError(ConfigurationError):
    """The collection already uses the requested embedding model.

    Remedy: No action is needed.
    """


class MissingKeyError(ConfigurationError):
    """A model server needs a key that is not set; the message names the environment variable.

    Remedy: Set the variable that the message names.
    """


class CalibrationFileError(ConfigurationError):
    """The file of a calibration cannot be read, or contains no calibration; the message names the file.

    Remedy: `semlex eval calibrate` makes a file; `semlex config` shows which setting names it.
    """


class CollectionSettingsError(ConfigurationError):
    """An option differs from the one with which the collection was made.

    Remedy: Leave the option out, or create another collection; `semlex status` shows the options.

    Attributes:
        collection: Name of the collection.
        option: Name of the option.
        asked: The value that was asked for.
        stored: The value that the collection has.
    """

    def __init__(self, collection: str, option: str, asked: object, stored: object) -> None:
        self.collection, self.option, self.asked, self.stored = collection, option, asked, stored
        remedy = "choose another collection"
        if option in ("chunk_tokens", "overlap_tokens", "min_tokens"):
            name = option.replace("_", "-")
            remedy = f"split its files again: semlex maintain rechunk --collection {collection} --{name} {asked}"
        super().__init__(
            f"collection {collection!r} has {option}={stored!r}, but you gave {asked!r}: leave the option out, or "
            f"{remedy}"
        )


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong with one field of one row. As text it is a sentence: what, where, and what helps.

    Attributes:
        row: Position of the row in the call, counted from 0; -1 when the error concerns the whole call.
        id: The row's id as given (shortened to 80 characters), or None when it has none or the id itself is unusable.
        field: Name of the field, for example ``"content"`` or ``"metadata"``.
        code: Stable name of the rule that was broken, for example ``"too_long"``.
        limit: The bound that was broken, as text, or None.
        actual: What was found, as text (a length, a dimension, an offset: never the value itself), or None.
        key: Key of the field, if it is a mapping and the key can be shown; or None.
    """

    row: int
    id: str | None
    field: str
    code: str
    limit: str | None = None
    actual: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        name = self.field if self.key is None else f"{self.field} key {self.key!r}"
        text = sentence(name, self.code, self.limit, self.actual, of_row=self.row >= 0)
        if self.row < 0:
            return text
        where = f"row {self.row}" if self.id is None else f"row {self.row} (id {self.id!r})"
        return f"{where}: {text}"


class ValidationError(SemlexError, ValueError):
    """Rows, vectors, ids, a filter or a query were refused; nothing was written.

    The message has the first errors, one per line, and the number of the others.

    Remedy: Correct the rows that `errors` names: row, field and rule of each.

    Attributes:
        errors: Every error of every row, in row order.
        note: Additional information, such as the file that the rows are from; the message's last line.
    """

    def __init__(self, errors: Iterable[FieldError], note: str = "") -> None:
        self.errors, self.note = tuple(errors), note
        lines = [str(error) for error in self.errors[:SHOWN_ERRORS]]
        rest = len(self.errors) - SHOWN_ERRORS
        if rest > 0:
            lines.append(f"and {rest:,} more (see .errors)")
        if len(self.errors) > 1:
            lines.insert(0, f"{len(self.errors):,} errors:")
        if note:
            lines.append(note)
        super().__init__("\n  ".join(lines))


class DuplicateError(SemlexError, ValueError):
    """Ids are stored already or given twice, and ``on_duplicate="fail"`` refuses that; the batch was not written.

    If the connection was lost during the commit and the batch was tried again, the first try may have stored the ids.

    Remedy: Use other ids, or replace what is stored with `on_duplicate`.

    Attributes:
        ids: The ids, at most 1,000.
        note: Additional information; the message's last line.
    """

    def __init__(self, ids: Iterable[str], note: str = "") -> None:
        self.ids, self.note = tuple(islice(ids, SHOWN_DUPLICATES)), note
        shown = ", ".join(repr(one[:80]) for one in self.ids[:SHOWN_ERRORS])
        rest = len(self.ids) - SHOWN_ERRORS
        more = f" and {rest:,} more" if rest > 0 else ""
        text = (
            f"these ids are stored already or given twice: {shown}{more}; leave their rows out, or say what to do with "
            "them: on_duplicate='update' or 'skip' (--on-duplicate)"
        )
        super().__init__(f"{text}\n  {note}" if note else text)


class DumpError(SemlexError, ValueError):
    """A dump is incomplete, changed, or of another version; nothing of it was restored.

    Remedy: Use another copy; `semlex collections dump` makes a new one.
    """


class MissingExtraError(SemlexError, ImportError):
    """An optional package is not installed.

    Remedy: The message has the command that installs it.
    """

    def __init__(self, package: str, extra: str, purpose: str, otherwise: str = "") -> None:
        instead = f"; or {otherwise}" if otherwise else ""
        install = f"'semlex[{extra}]'" if extra else package
        super().__init__(f"{purpose} needs the package {package!r}: pip install {install}{instead}")


@contextmanager
def needing(module: str, package: str, extra: str, purpose: str) -> Iterator[None]:
    """Raise `MissingExtraError` if an import inside fails because a module is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in {module, module.partition(".")[0]}:
            raise
        raise MissingExtraError(package, extra, purpose) from None


class ModelError(SemlexError, RuntimeError):
    """A model cannot do its work.

    Remedy: `semlex doctor models` shows which models work here.
    """


class ModelNotFoundError(ModelError, LookupError):
    """A model cannot be loaded; the message says what was tried and what helps.

    Remedy: `semlex models pull` downloads a model, if the hub is reachable.
    """


class ModelNotAllowedError(ModelError, PermissionError):
    """A collection was made with a model on a server or in a folder, and the user has not named this model.

    Remedy: Allow the model with the setting `models`, if you trust the server or folder.
    """


class ModelMismatchError(ModelError, ValueError):
    """The collection was made with another model or another dimension.

    Remedy: Use the collection's model, or change it with `semlex models set`.
    """


class EmbeddingsMissingError(SemlexError, LookupError):
    """A vector search was requested, but the collection holds no vectors.

    Remedy: `semlex models fill` computes the vectors; `--mode keyword` needs none.
    """


class SearchTimeoutError(SemlexError, TimeoutError):
    """No search answered before the deadline.

    Remedy: Give a longer deadline; `semlex doctor` finds what makes searches slow, such as a missing index.
    """


class CollectionFailedError(SemlexError, RuntimeError):
    """One collection of a knowledge base did not answer.

    Remedy: Read the cause in `error`; `on_error="skip"` continues with the other collections.

    Attributes:
        collection: Its name in the knowledge base.
        error: The error that it raised.
    """

    def __init__(self, collection: str, error: SemlexError) -> None:
        self.collection, self.error = collection, error
        super().__init__(
            f"collection {collection!r} of the knowledge base did not answer (on_error='skip' continues without it): "
            f"{error}"
        )


class JobTimeoutError(SemlexError, TimeoutError):
    """A job did not end before the timeout; it keeps running.

    Remedy: `semlex jobs show` shows its state.
    """


class WorkAbandonedError(SemlexError, RuntimeError):
    """Work ended early, because its caller was cancelled or closed the retriever.

    Remedy: No action is needed, or close the retriever later.
    """


class ModelServerError(ModelError, ConnectionError):
    """A model's server cannot be reached, refuses, or answers with something that cannot be used.

    Remedy: Read the server's own log; `semlex doctor models` tests it.

    Attributes:
        status: HTTP status of the last response, or None if none came.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class StoreError(SemlexError, RuntimeError):
    """The database refused a statement, or failed.

    Remedy: Read the message; `semlex doctor` finds most causes.

    Attributes:
        sqlstate: The server's five-character code, or None when the error did not come from the server.
    """

    def __init__(self, message: str, *, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class ConnectionFailedError(StoreError, ConnectionError):
    """The server cannot be reached, or the connection was lost.

    Remedy: `semlex doctor` names the server and tests it.
    """


class ReadOnlyError(StoreError, PermissionError):
    """The server is a standby, or the transaction does not accept writes.

    Remedy: Use the address of the primary, or a role that can write.
    """


class PrivilegeError(StoreError, PermissionError):
    """The role lacks a right; the message has the SQL for the owner of the database, or the page of the docs with it.

    Remedy: Let the owner run this SQL.
    """


class UnsupportedServerError(StoreError):
    """The version of Postgres or pgvector is too old, or the encoding of the database is not UTF-8.

    Remedy: `semlex doctor server` shows the versions; update Postgres or pgvector, or use a database in UTF-8.
    """


class CollectionNotFoundError(StoreError, LookupError):
    """No collection has that name.

    Remedy: `semlex collections` lists the names; the message names the server, which `DATABASE_URL` may set.
    """


class CollectionDroppedError(CollectionNotFoundError):
    """The open collection was dropped; another may have its name now, and the next call opens that one.

    Remedy: Call again.
    """


class SchemaVersionError(StoreError):
    """The tables were made by a newer semlex, or by an unreleased one.

    Remedy: Update semlex here, or drop the collection; the message says which.
    """


class IncompleteWriteError(StoreError):
    """The server received a different number of rows than were sent; the transaction was rolled back.

    Remedy: Run the write again.
    """


class LeaseLostError(StoreError):
    """This worker did not report in time, so another worker took over its job; this worker's writes are refused.

    Remedy: No action is needed; if it happens often, give the worker a longer lease.
    """


class DamagedSegmentError(StoreError):
    """A row of the keyword index is missing, or differs from what was written.

    Remedy: `semlex maintain reindex` rebuilds the index from the texts.

    Args:
        segment_id: The damaged segment or tombstone; None if the damage is not in a single one.
        what: What is wrong with it.
    """

    def __init__(self, segment_id: str | None, what: str) -> None:
        damaged = "the keyword index" if segment_id is None else f"segment {segment_id} of the keyword index"
        super().__init__(
            f"{damaged} is damaged ({what}); rebuild the index from the texts with: semlex maintain reindex"
        )
        self.segment_id = segment_id


class AnalyzerVersionError(StoreError):
    """The keyword index was made by another version of the analyzer.

    Remedy: `semlex maintain reindex` rebuilds the index from the texts.
    """


class EmbeddedServerError(StoreError):
    """The embedded Postgres could not be started or stopped.

    Remedy: `semlex postgres status` shows its state; the message names its log.
    """
