"""The kinds of jobs: their arguments and checks, what they may use on a worker, and the calls they make."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from semlex.errors import ConfigurationError, ModelServesError
from semlex.filters.fields import nearest
from semlex.ingest.files.safe_open import only_below
from semlex.ingest.given_documents import GivenDocuments
from semlex.options.declare import declared
from semlex.options.indexing import ChunkSizes, FindOptions, FolderKeys, ReadOptions
from semlex.types.documents import Document, json_value
from semlex.types.jobs import MAX_ARGUMENT_BYTES, MAX_LISTED_PROBLEMS
from semlex.validation import (
    Errors,
    check_parameters,
    is_one_of,
    kind_errors,
    model_errors,
    strings_errors,
    text_errors,
    whole_number_errors,
)

if TYPE_CHECKING:
    from semlex.embedding.base import Embedder
    from semlex.ingest.given_documents import Given
    from semlex.ingest.progress import IndexReport, Progress

T = TypeVar("T")
TIMES = ("created_at", "updated_at")
NAMES = frozenset(one.name for one in fields(Document))


def documents_to_json(documents: Given) -> list[dict[str, Any]]:
    """Check documents, give ids to those without one, and return all as JSON, without empty fields."""
    taken = GivenDocuments.taken(documents)
    if taken.vectors is not None:
        raise ConfigurationError(
            "documents of a job cannot have vectors: leave the vectors out, or call add_documents()"
        )
    given = taken.checked(None)
    columns = {one.name: given.ids if one.name == "id" else getattr(given, one.name) for one in fields(Document)}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return [{name: json_value(value) for name, value in row.items() if value not in (None, [], {})} for row in rows]


def documents_from_json(rows: object) -> list[Document]:
    """Convert a job's JSON to documents, checking its structure; adding the documents checks their values."""
    if not isinstance(rows, list) or not rows:
        raise ConfigurationError("documents must be a list of at least one object")
    documents = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or not row.keys() <= NAMES or not isinstance(row.get("content"), str):
            raise ConfigurationError(
                f"documents: row {number} must be an object with 'content', and only fields of Document"
            )
        try:
            times = {name: datetime.fromisoformat(row[name]) for name in TIMES if name in row}
        except (TypeError, ValueError):
            raise ConfigurationError(f"documents: row {number} has a time that is not in ISO 8601") from None
        documents.append(Document(**{**row, **times}))
    return documents


Check: TypeAlias = Callable[[str, object], Errors]


@dataclass(frozen=True, slots=True)
class Work:
    """The open collection of a job, its arguments, and what it may use on this worker."""

    collection: Any
    arguments: dict[str, Any]
    progress: Callable[[Progress], None]
    allowed: Allowed


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job: its arguments with their checks, and the call that it makes."""

    run: Callable[[Work], Awaitable[dict[str, Any]]]
    options: Mapping[str, Check]
    needed: str | None = None


def arguments_to_store(kind: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a new job's arguments as JSON: absolute paths, documents with ids, no argument that is None."""
    given = {} if given is None else given
    check_parameters(kind_errors("kind", kind, str), kind_errors("arguments", given, Mapping))
    arguments = {name: value for name, value in given.items() if value is not None}
    _check_names(kind, arguments)
    if "paths" in arguments:
        arguments["paths"] = _absolute(arguments["paths"])
    if "documents" in arguments:
        documents = arguments["documents"]
        is_json = isinstance(documents, list) and any(isinstance(row, Mapping) for row in documents)
        arguments["documents"] = documents_to_json(documents_from_json(documents) if is_json else documents)
    # Users give sets and tuples as sequences, too.
    lists = {name: list(value) for name, value in arguments.items() if isinstance(value, (set, frozenset, tuple))}
    arguments = check_arguments(kind, arguments | lists)
    size = len(json.dumps(arguments, ensure_ascii=False).encode())
    if size > MAX_ARGUMENT_BYTES:
        raise ConfigurationError(
            f"the arguments of a job have at most {MAX_ARGUMENT_BYTES:,} bytes; these have {size:,}: submit several "
            "jobs, put the documents into a file and submit 'index' for it, or call add_documents()"
        )
    return arguments


# Arguments are checked when a job is submitted and again before it runs, because others can write to the jobs table. A
# kind in the table can only mean one of the kinds in this file.
def check_arguments(kind: str, arguments: object) -> dict[str, Any]:
    """Return stored arguments after checking them."""
    if not isinstance(arguments, dict):
        raise ConfigurationError(f"arguments must be an object; got {type(arguments).__name__}")
    _check_names(kind, arguments)
    options = KINDS[kind].options
    check_parameters(*(options[name](name, value) for name, value in arguments.items()))
    return arguments


def _check_names(kind: str, arguments: Mapping[str, Any]) -> None:
    if kind not in KINDS:
        raise ConfigurationError(f"unknown job kind {kind[:80]!a}; known kinds: {', '.join(KINDS)}")
    options, needed = KINDS[kind].options, KINDS[kind].needed
    for name in arguments:
        if name not in options:
            known = f"it takes {', '.join(options)}" if options else "it takes none"
            near = nearest(str(name), options)
            raise ConfigurationError(
                f"arguments: a job of the kind {kind!r} has no argument {str(name)[:80]!a}{near or f'; {known}'}"
            )
    if needed is not None and needed not in arguments:
        raise ConfigurationError(f"arguments: a job of the kind {kind!r} needs {needed}")


def _absolute(paths: object) -> list[str]:
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if not isinstance(given, (list, tuple)) or not given:
        raise ConfigurationError("paths must be a list of at least one path")
    check_parameters(*(kind_errors("paths", path, str, Path) or _text("paths", str(path)) for path in given))
    return [os.path.abspath(path) for path in given]  # noqa: PTH100 - as `Path.absolute`, without ``..``


# --- what is wrong with a value ---------------------------------------------------------------------------------------

_text = partial(text_errors, blank=False)


def _texts(field: str, value: object) -> Errors:
    texts = value if isinstance(value, list) else []
    return strings_errors(field, value) or [error for text in texts for error in text_errors(field, text)]


def _one_of(*choices: str) -> Check:
    def check(field: str, value: object) -> Errors:
        if not is_one_of(value, choices):
            raise ConfigurationError(f"{field} must be {' or '.join(map(repr, choices))}; got {value!r:.80}")
        return []

    return check


def _paths(field: str, value: object) -> Errors:
    errors = _texts(field, value)
    if not errors and not (isinstance(value, list) and value and all(map(os.path.isabs, value))):
        raise ConfigurationError(f"{field} must be a list of at least one absolute path")
    return errors


def _documents(_field: str, value: object) -> Errors:
    documents_from_json(value)
    return []


# --- what a worker may use --------------------------------------------------------------------------------------------


# A role that can write to the database can submit a job. The job's paths are read with the worker's rights, and their
# texts are stored where others can search them. So a worker reads only the folders that were named at its start.
class AllowedFolders:
    """Folders that jobs may read, including everything below; none by default."""

    def __init__(self, folders: Sequence[str | Path] = ()) -> None:
        check_parameters(strings_errors("allow", [str(one) for one in folders]))
        self.roots = [Path(os.path.realpath(folder)) for folder in folders]
        for given, root in zip(folders, self.roots, strict=True):
            if not os.path.isdir(root):  # noqa: PTH112 - says False where Path would raise
                raise ConfigurationError(f"allow: {str(given)!a} is not an existing folder")

    async def check(self, paths: Sequence[str]) -> None:
        """Refuse paths that may not be read, or that this worker cannot see."""
        # A path that is missing here may exist on another machine, so it is not treated as deleted.
        for path in paths:
            await asyncio.to_thread(self._check, path)

    def _check(self, path: str) -> None:
        real: Path | None = None
        # ValueError: a NUL or a lone surrogate. OSError: a link that was replaced meanwhile.
        with suppress(OSError, ValueError):
            real = Path(os.path.realpath(path))
        if real is None or not any(real.is_relative_to(root) for root in self.roots):
            raise ConfigurationError(
                f"{path!a} is not in a folder that this worker may read: start a worker with --allow FOLDER (allow=) "
                "on the machine that has this path, then: semlex jobs retry ID"
            )
        try:
            real.stat()
        except OSError as error:
            raise ConfigurationError(
                f"this worker cannot see {path!a} ({error.strerror}); nothing was changed. Mount the folder, or start "
                "a worker on the machine that has this path, then: semlex jobs retry ID"
            ) from None


@dataclass(frozen=True, slots=True)
class Allowed:
    """The folders and models that jobs may use on a worker."""

    folders: AllowedFolders
    models: Mapping[str, str | Embedder] = field(default_factory=dict)

    def model(self, name: str) -> str | Embedder:
        """Return the allowed model with this name."""
        if name not in self.models:
            known = ", ".join(map(repr, self.models)) or "none"
            raise ConfigurationError(
                f"this worker may not use the model {name[:200]!a} (its models: {known}): start a worker with "
                "--allow-model NAME (models=), then: semlex jobs retry ID"
            )
        return self.models[name]


def models_by_name(models: Sequence[str | Embedder]) -> dict[str, str | Embedder]:
    """Return models by the names that jobs use: the given name, or the name in the embedder's identity."""
    if not isinstance(models, (list, tuple)):
        raise ConfigurationError(f"models must be a list of names or embedders; got {type(models).__name__}")
    check_parameters(
        *(
            _text("models", model)
            if isinstance(model, str)
            else model_errors("models", model, "identity", "embed_documents", "embed_query")
            for model in models
        )
    )
    return {model if isinstance(model, str) else model.identity.model: model for model in models}


# --- what is done -----------------------------------------------------------------------------------------------------


async def _with_paths(call: Callable[..., Awaitable[T]], work: Work) -> T:
    """Call a method that reads the job's paths, after checking that this worker may read them."""
    options = dict(work.arguments)
    paths = options.pop("paths")
    await work.allowed.folders.check(paths)
    with only_below(work.allowed.folders.roots):
        return await call(*paths, **options, progress=work.progress)


async def _index(work: Work) -> dict[str, Any]:
    return _counts(await _with_paths(work.collection.index, work))


async def _sync(work: Work) -> dict[str, Any]:
    report = await _with_paths(work.collection.sync, work)
    return _counts(report.run) | {"moved": report.done.moved, "deleted": report.done.deleted}


async def _rechunk(work: Work) -> dict[str, Any]:
    wanted = work.arguments.get("source")
    sources = await work.collection.documents.sources()
    await work.allowed.folders.check([source.root for source in sources if wanted in (None, source.name)])
    with only_below(work.allowed.folders.roots):
        return _counts(await work.collection.documents.rechunk(**work.arguments, progress=work.progress))


async def _add(work: Work) -> dict[str, Any]:
    options = dict(work.arguments)
    documents = documents_from_json(options.pop("documents"))
    return {"written": len(await work.collection.add_documents(documents, **options, progress=work.progress))}


async def _optimize(work: Work) -> dict[str, Any]:
    return {"merged": await work.collection.indexes.optimize(progress=work.progress)}


async def _embed(work: Work) -> dict[str, Any]:
    return {"embedded": await work.collection.embeddings.fill(progress=work.progress)}


async def _reembed(work: Work) -> dict[str, Any]:
    options = dict(work.arguments)
    model = work.allowed.model(options.pop("model"))
    try:
        report = await work.collection.embeddings.change(model, **options, progress=work.progress)
    except ModelServesError:  # an earlier attempt ended after the last step
        return {"embedded": 0}
    return {"embedded": report.embedded}


def _counts(report: IndexReport) -> dict[str, Any]:
    names = ("added", "changed", "unchanged", "failed", "chunks", "embedded")
    problems = [
        {"source_document": one.source_document, "code": one.code} for one in (*report.problems, *report.without_text)
    ]
    named = {"problems": problems[:MAX_LISTED_PROBLEMS]} if problems else {}
    return {name: getattr(report, name) for name in names} | named


def _declared(options: type) -> dict[str, Check]:
    def check(field: str, value: object) -> Errors:
        one = declared(options)[field]
        return _texts(field, value) if one.form == "texts" else one.errors(value)

    return dict.fromkeys(declared(options), check)


_FILES: dict[str, Check] = {
    "paths": _paths,
    **_declared(FindOptions),
    **_declared(ReadOptions),
    **_declared(ChunkSizes),
}
KINDS: dict[str, JobKind] = {
    "index": JobKind(_index, _FILES, "paths"),
    "sync": JobKind(_sync, {**_FILES, **_declared(FolderKeys)}, "paths"),
    # Not "fail": a repeated attempt would fail on its own rows.
    "add": JobKind(_add, {"documents": _documents, "on_duplicate": _one_of("update", "skip")}, "documents"),
    "optimize": JobKind(_optimize, {}),
    "rechunk": JobKind(_rechunk, {**_declared(ChunkSizes), "source": _text}),
    "embed": JobKind(_embed, {}),
    "reembed": JobKind(
        _reembed,
        {
            "model": _text,
            "dimensions": partial(whole_number_errors, minimum=0),
            "vector_storage": _one_of("vector", "halfvec"),
        },
        "model",
    ),
}
