"""Chooses the models of an open collection: those configured, stored with the collection, or available."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

from semlex.embedding.registry import KEYWORDS_ONLY, STATIC, choose_embedder
from semlex.embedding.static import WHEEL_MODEL
from semlex.errors import (
    MissingExtraError,
    MissingKeyError,
    ModelError,
    ModelMismatchError,
    ModelNotAllowedError,
    ModelNotFoundError,
)
from semlex.models.files import find_cached
from semlex.models.model_names import LANGCHAIN, ONNX_PREFIX, ModelChoice, bare_name, host_of, leads_to, split_name
from semlex.open_collection import OpenModels, OpenReranker
from semlex.options.collection import model_defaults
from semlex.reranking.registry import choose_reranker
from semlex.settings.files import own_file
from semlex.settings.sources import named_models
from semlex.settings.table import model_names
from semlex.store.schema.collection import GIVEN, EmbeddingVersion
from semlex.validation import check_parameters, kind_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from semlex.chat import ChatModel
    from semlex.embedding.base import Embedder
    from semlex.models.executor import ModelExecutor
    from semlex.reranking.base import Reranker

STORED = "the collection's model"
NOT_ONNX = ""  # in place of the name of a file
SHOWN_NAME = 200  # characters of a stored name that a message shows


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The models that the user asked for.

    Attributes:
        embedding_model: As for `semlex.embedding.registry.choose_embedder`.
        reranker_model: As for `semlex.reranking.registry.choose_reranker`.
        use_reranking: As for `semlex.reranking.registry.choose_reranker`.
        device: Where local models run, or None.
        dimensions: Length of the vectors, or None.
        models: Models on servers or in folders that collections may use.
        tokenizer: The tokenizer of a model on a server; see `semlex.models.tokenizer.given_tokenizer`.
        chat_model: As for `semlex.chat.choose_chat_model`.
        default_model: Default of `embedding_model`, for collections without vectors, or with vectors of this model.
        default_dimensions: Default of `dimensions`, for collections without vectors, or with vectors of this length.
        default_tokenizer: Default of `tokenizer`, used for models on servers.
    """

    embedding_model: str | Embedder | None = None
    reranker_model: str | Reranker | None = None
    use_reranking: bool | Literal["auto"] = "auto"
    device: str | None = None
    dimensions: int | None = None
    models: Sequence[str] = ()
    tokenizer: str | PathLike[str] | None = None
    chat_model: str | ChatModel | None = None
    default_model: str | None = None
    default_dimensions: int | None = None
    default_tokenizer: str | None = None

    @classmethod
    def of(
        cls,
        embedding_model: str | Embedder | None,
        reranker_model: str | Reranker | None,
        use_reranking: bool | Literal["auto"],
        options: Mapping[str, Any],
    ) -> ModelOptions:
        """Make the model options from those of a client or retriever."""
        check_parameters(kind_errors("defaults", options.get("defaults"), Mapping, NoneType))
        given = {name: options[name] for name in ("device", "dimensions", "tokenizer", "chat_model") if name in options}
        return cls(
            embedding_model,
            reranker_model,
            use_reranking,
            models=model_names(options.get("models", ())),
            **given,
            **model_defaults(options.get("defaults")),
        )

    def unused(self, stored: EmbeddingVersion | None) -> dict[str, tuple[Any, Any]]:
        """Return the defaults that do not apply to a collection with these vectors: name -> (default, stored)."""
        if stored is None:
            return {}
        model, dimensions = self.default_model, self.default_dimensions
        found: dict[str, tuple[Any, Any]] = {}
        if self.embedding_model is None and model not in (None, KEYWORDS_ONLY) and not same_model(model, stored.model):
            found["embedding_model"] = (model, stored.model)
        if self.dimensions is None and dimensions not in (None, stored.dimensions):
            found["dimensions"] = (dimensions, stored.dimensions)
        return found

    def unused_tokenizer(self, counter: str | None, stored: str) -> dict[str, tuple[Any, Any]]:
        """Return the default tokenizer if the collection counts tokens in another way: name -> (default, stored)."""
        is_unused = self.default_tokenizer is not None and self.tokenizer is None and counter not in (None, stored)
        return {"tokenizer": (self.default_tokenizer, stored)} if is_unused else {}

    def chosen_for(self, stored: EmbeddingVersion | None) -> ModelOptions:
        """Return these options, completed by the defaults that apply to a collection with the stored vectors."""
        unused = self.unused(stored)
        model, dimensions = self.embedding_model, self.dimensions
        if model is None and "embedding_model" not in unused:
            model = self.default_model
        if dimensions is None and "dimensions" not in unused:
            dimensions = self.default_dimensions
        return replace(self, embedding_model=model, dimensions=dimensions)

    def tokenizer_of(self, model: str | Embedder | None) -> str | PathLike[str] | None:
        """Return the tokenizer to use for a model; the default one is used for models on servers only."""
        at_server = isinstance(model, str) and leads_to(model) == "server"
        return self.tokenizer if self.tokenizer is not None or not at_server else self.default_tokenizer


def runs_on_torch(model: Embedder | Reranker | None) -> bool:
    """Return whether a model needs torch, which cannot be used after a fork."""
    return bool(getattr(model, "runs_on_torch", False))


async def open_embedder(executor: ModelExecutor, options: ModelOptions, stored: EmbeddingVersion | None) -> OpenModels:
    """Choose the embedder; a collection's own model is never silently replaced by another one.

    A model that the user names is used, or the call fails. A name that only the database holds is used if the model is
    installed as a package, is in the local cache, or is on the user's list; else the collection opens without a model.
    """
    options = options.chosen_for(stored)
    if options.embedding_model is not None or stored is None:
        return await executor.query(lambda: _open(_configured(options, stored), options))
    if stored.model == GIVEN:
        return OpenModels(embedding_choice="vectors are given by the caller; without them, keyword search only")

    def open_stored() -> OpenModels:
        try:
            return _open(_stored(stored, options), options)
        except ModelMismatchError:
            raise
        except (ModelError, MissingExtraError, MissingKeyError) as error:
            missing = (
                error
                if isinstance(error, ModelNotAllowedError)
                else ModelError(
                    f"the collection's model {stored.model} cannot be used here: {error}; or search by words: --mode "
                    "keyword, or --model none (embedding_model='none')"
                )
            )
            return OpenModels(embedding_choice=f"keyword search only: {missing}", missing=missing)

    return await executor.query(open_stored)


async def open_reranker(executor: ModelExecutor, options: ModelOptions) -> OpenReranker:
    """Choose the reranker."""
    # In a thread of its own: queries are embedded meanwhile.
    with executor.several(1) as run:
        choice: ModelChoice[Reranker] = await run(
            lambda: choose_reranker(options.reranker_model, options.use_reranking, device=options.device)
        )
    return OpenReranker(choice.model, choice.reason, owned=choice.model is not options.reranker_model)


def _open(choice: ModelChoice[Embedder], options: ModelOptions) -> OpenModels:
    """Return the chosen embedder with its identity and dimensions; reading these may open files or ask a server."""
    embedder = choice.model
    if embedder is None:
        return OpenModels(embedding_choice=choice.reason)
    opened = OpenModels(embedder, choice.reason, owned=() if embedder is options.embedding_model else (embedder,))
    try:
        identity = embedder.identity
        return replace(
            opened,
            counter_name=embedder.counter_name,
            names_tokenizer=options.tokenizer is not None,
            version=EmbeddingVersion(0, identity.key, identity.model, identity.revision, identity.dimensions),
            of_length_1=identity.normalised,
        )
    except BaseException:
        opened.close()
        raise


def _configured(options: ModelOptions, stored: EmbeddingVersion | None) -> ModelChoice[Embedder]:
    configured, dimensions = options.embedding_model, options.dimensions
    if dimensions is None and stored is not None and configured == stored.model:
        dimensions = stored.dimensions
    tokenizer = options.tokenizer_of(configured)
    return choose_embedder(configured, device=options.device, dimensions=dimensions, tokenizer=tokenizer)


def _stored(stored: EmbeddingVersion, options: ModelOptions) -> ModelChoice[Embedder]:
    """Return the embedder that a stored name means."""
    name = stored.model
    dimensions = stored.dimensions if options.dimensions is None else options.dimensions
    listed = _check_usable(name, options)
    # The environment has one key and does not say for which of several hosts it is: then none of them gets it.
    known = [*listed, options.default_model or ""]
    hosts = {host_of(entry) or entry for entry in known if leads_to(entry) == "server"}
    return choose_embedder(
        name,
        device=options.device,
        dimensions=dimensions,
        why=STORED,
        send_key=len(hosts) == 1,
        tokenizer=options.tokenizer_of(name),
    )


def _check_usable(name: str, options: ModelOptions) -> list[str]:
    """Refuse a stored model name that is not allowed or not available here, without opening the model.

    If the name means a server or folder, return the names that the user allows; else return [].
    """
    if name.startswith(LANGCHAIN):
        raise ModelNotFoundError(
            "it is a model of LangChain, so pass it in your program: SemlexVectorStore(embedding), or "
            "embedding_model=LangChainEmbedder(embedding)"
        )
    if leads_to(name) is not None:
        listed = [*options.models, *named_models()]
        if not any(same_name(entry, name) for entry in listed):
            raise _not_allowed(name)
        return listed
    if name not in {STATIC, WHEEL_MODEL}:
        _check_cached(name)
    return []


def stored_problem(stored: EmbeddingVersion, options: ModelOptions) -> str | None:
    """Return why the collection's stored model cannot be used here, as far as that is known without opening it."""
    if stored.model == GIVEN:
        return None
    try:
        _check_usable(stored.model, options)
    except (ModelError, MissingExtraError) as error:
        return str(error)
    return None


def same_name(listed: str, stored: str) -> bool:
    """Return whether a name that the user gave is the stored one; a folder is stored by its absolute path."""
    listed, stored = bare_name(listed), bare_name(stored)
    if listed == stored or {listed, stored} <= {STATIC, WHEEL_MODEL}:
        return True
    return leads_to(listed) == "folder" and str(Path(listed).expanduser().resolve()) == stored


def same_model(wanted: str, stored: str) -> bool:
    """Return whether the user's name and the stored name mean the same model; for ONNX models, also the same file."""
    files = [split_name(name)[1] if name.startswith(ONNX_PREFIX) else NOT_ONNX for name in (wanted, stored)]
    return same_name(wanted, stored) and files[0] == files[1]


def _check_cached(name: str) -> None:
    """Refuse a hub id if its model is not in the local cache."""
    hub_id = bare_name(name)
    if find_spec("huggingface_hub") is None:
        raise MissingExtraError("huggingface_hub", "onnx", "a model of the hub")
    if find_cached(hub_id, weights="onnx" if name.startswith(ONNX_PREFIX) else "safetensors") is None:
        pulled = shlex.quote(name if name.startswith(ONNX_PREFIX) else hub_id)
        raise ModelNotFoundError(
            f"it is not in the local cache of the hub; fetch it where the hub is reachable: semlex models pull {pulled}"
        )


def _not_allowed(name: str) -> ModelNotAllowedError:
    place = "on a server" if leads_to(name) == "server" else "in a folder"
    shown = repr(name if len(name) <= SHOWN_NAME else f"{name[:SHOWN_NAME]}…")
    message = (
        f"the collection was made with the model {shown}, {place}, "
        "and semlex does not use such a model just because a database names it"
    )
    if name.isprintable() and len(name) <= SHOWN_NAME:
        quoted = shlex.quote(name)
        listed = f"{own_file()} with: models = [{json.dumps(name, ensure_ascii=False)}]"
        message += (
            f"; if you trust it, name it yourself: --model {quoted}, models=[{name!r}] in Python, or for all calls "
            f"SEMLEX_MODELS={quoted} or {listed}"
        )
    return ModelNotAllowedError(message)
