"""Examination of this machine's models and of a database server."""

from __future__ import annotations

import asyncio
import platform
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from semlex.diagnostics.server_settings import Advice, examine_settings
from semlex.embedding.registry import choose_embedder
from semlex.errors import ModelError, SemlexError
from semlex.models.files import ModelFolder, find_cached, find_model, leads_to_onnx
from semlex.models.local.device import Placement, choose_placement, describe_devices
from semlex.models.model_names import DEFAULT_EMBEDDING_MODEL, DEFAULT_RERANKING_MODEL, ONNX_PREFIX
from semlex.models.tokenizer import open_tokenizer
from semlex.reranking.registry import choose_reranker
from semlex.store.keyword.extensions import OLDEST, read_extension
from semlex.store.postgres.addresses import describe
from semlex.store.postgres.database import Database
from semlex.store.postgres.server_info import read_server_info
from semlex.store.query.health import find_problems

if TYPE_CHECKING:
    from semlex.embedding.base import Embedder, EmbedderIdentity
    from semlex.models.local.transformer import RuntimeReport
    from semlex.store.postgres.connection import Connection

# Packages of models on the package index, and their extras.
PACKAGES = {
    "torch": "torch",
    "transformers": "torch",
    "tokenizers": "torch",
    "safetensors": "torch",
    "huggingface-hub": "torch",
    "model2vec": "local",
    "wordllama": "local",
    "sentence-transformers": "sentence-transformers",
    "onnxruntime": "onnx",
}
# The text to try models with; it is also sent to model servers.
QUESTION = "Does this model work here?"


@dataclass(frozen=True, slots=True)
class ModelExamination:
    """The result of trying one model."""

    name: str
    role: str  # "embedding" or "reranking"
    choice: str | None = None  # one line about the model that the name means; None if it means none
    path: str | None = None
    revision: str | None = None  # commit of the hub, "sha256:…" of a local folder, or None
    tokenizer: str | None = None
    tokenizer_engine: str | None = None
    # How the model runs (device, precision, forward pass, token budget) and what failed before that; None without
    # torch.
    runtime: RuntimeReport | None = None
    identity: EmbedderIdentity | None = None  # everything that its vectors depend on
    max_tokens: int | None = None  # of a text; None if unknown
    seconds: float | None = None  # from opening it to its first answer
    problem: str | None = None  # why it does not work, with the remedy


@dataclass(frozen=True, slots=True)
class ModelsExamination:
    """The packages and devices that models can use on this machine; without torch, devices are empty."""

    python: str
    packages: dict[str, str | None]  # version of each package of models, or None
    install: dict[str, str]  # extra with a missing package -> the command that installs it
    devices: dict[str, str]  # devices of torch with a line about each, the best first
    device: str | None
    precision: str | None
    precision_reason: str  # why this precision was chosen, or why torch cannot be used
    defaults: dict[str, str]  # folder of each default model of Qwen3 in the local cache, or how to fetch it
    models: tuple[ModelExamination, ...]


@dataclass(frozen=True, slots=True)
class ServerExamination:
    """The versions, keyword engines, problems and settings of a database server."""

    server: str  # host, port, database and user
    postgres: int  # major version
    pgvector: str | None  # None if it is not installed in the database
    read_only: bool
    keyword_engines: dict[str, str]  # Engine -> version of its extension, or why it cannot be used and the remedy.
    problems: list[str]  # of the server and its collections, with remedies
    settings: list[Advice]  # settings that affect speed, with advice


def examine_server(url: str) -> ServerExamination:
    """Examine a database: versions, keyword engines, problems of collections, settings."""

    async def work(connection: Connection) -> ServerExamination:
        info = await read_server_info(connection)
        engines = {}
        for name in OLDEST:
            extension = await read_extension(connection, name)
            if extension is not None:
                engines[name] = extension.problem or f"{extension.installed} in schema {extension.schema}"
        pgvector = None if info.pgvector is None else ".".join(map(str, info.pgvector))
        problems = [finding.sentence for finding in await find_problems(connection, info)]
        settings = await examine_settings(connection)
        return ServerExamination(describe(url), info.postgres, pgvector, info.read_only, engines, problems, settings)

    async def examine() -> ServerExamination:
        async with Database(url, max_size=1) as database:
            return await database.read_whole("look at the server", work)

    return asyncio.run(examine())


def examine_models(
    model: str | None = None, reranker: str | None = None, *, device: str | None = None, dimensions: int | None = None
) -> ModelsExamination:
    """Examine the packages and devices of this machine, and try the named models; nothing is downloaded."""
    # A named model is opened, tested, and given one fixed sentence; a model on a server is sent that sentence.
    packages = {package: _version(package) for package in PACKAGES}
    devices, placement, reason = _devices(device)
    named = [
        (model, "embedding", partial(_try_embedder, dimensions=dimensions)),
        (reranker, "reranking", _try_reranker),
    ]
    return ModelsExamination(
        python=platform.python_version(),
        packages=packages,
        install={
            extra: f"pip install 'semlex[{extra}]'" for package, extra in PACKAGES.items() if packages[package] is None
        },
        devices=devices,
        device=None if placement is None else placement.device,
        precision=None if placement is None else placement.precision,
        precision_reason=reason,
        defaults={name: _location(name) for name in (DEFAULT_EMBEDDING_MODEL, DEFAULT_RERANKING_MODEL)},
        models=tuple(_examine(name, role, device, attempt) for name, role, attempt in named if name is not None),
    )


def examine_embedder(embedder: Embedder) -> ModelExamination:
    """Ask a program's own embedder for its identity, without embedding."""
    try:
        identity = embedder.identity
    except SemlexError as error:
        return ModelExamination(type(embedder).__name__, "embedding", problem=str(error))
    most = getattr(embedder, "max_tokens", None)
    return ModelExamination(identity.model, "embedding", identity=identity, max_tokens=most)


def _version(package: str) -> str | None:
    if find_spec(package.replace("-", "_")) is None:
        return None
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


def _devices(device: str | None) -> tuple[dict[str, str], Placement | None, str]:
    if find_spec("torch") is None:
        return {}, None, "torch is not installed"
    try:
        placement = choose_placement(device, None)
        return describe_devices(), placement, placement.reason
    except (ImportError, OSError, RuntimeError) as error:  # incompatible libraries, or a broken driver
        return {}, None, f"torch is installed but does not work here ({type(error).__name__}); install torch again"


def _location(name: str) -> str:
    cached = find_cached(name)
    return f"not on this machine; fetch it: semlex models pull {name}" if cached is None else str(cached.path)


def _examine(name: str, role: str, device: str | None, attempt: Any) -> ModelExamination:
    found: dict[str, Any] = {"name": name, "role": role}
    try:
        folder = find_model(name.removeprefix(ONNX_PREFIX), weights="onnx" if leads_to_onnx(name) else "safetensors")
    except ModelError:
        pass  # a server's or a wheel's model; otherwise the attempt reports what was tried
    else:
        found |= {"path": str(folder.path), "revision": folder.revision} | _tokenizer(folder)
    started = time.perf_counter()
    try:
        found |= attempt(name, device)
    except SemlexError as error:
        return ModelExamination(**found, problem=str(error))
    except Exception as error:  # noqa: BLE001 (the examination goes on, whatever a model does)
        return ModelExamination(
            **found, problem=f"raised {type(error).__name__}, which is a defect of semlex: report it"
        )
    return ModelExamination(**found, seconds=time.perf_counter() - started)


def _tokenizer(folder: ModelFolder) -> dict[str, str]:
    if find_spec("tokenizers") is None:
        return {}
    try:
        tokenizer = open_tokenizer(folder)
    except ModelError:
        return {}
    return {"tokenizer": tokenizer.counter_name, "tokenizer_engine": getattr(tokenizer, "engine", "tokenizers")}


def _try_embedder(name: str, device: str | None, dimensions: int | None = None) -> dict[str, Any]:
    choice = choose_embedder(name, device=device, dimensions=dimensions)
    if choice.model is None:
        return {"choice": choice.reason}
    with closing(choice.model) as model:
        model.embed_query(QUESTION)
        return {
            "choice": choice.reason,
            "runtime": getattr(model, "report", None),
            "identity": model.identity,
            "max_tokens": getattr(model, "max_tokens", None),
        }


def _try_reranker(name: str, device: str | None) -> dict[str, Any]:
    choice = choose_reranker(name, device=device)
    if choice.model is None:
        return {"choice": choice.reason}
    with closing(choice.model) as model:
        model.score(QUESTION, [QUESTION])
        return {"choice": choice.reason, "runtime": getattr(model, "report", None)}
