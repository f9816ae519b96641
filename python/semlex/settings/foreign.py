"""Names that other programs use: the ``rag`` section of a ``settings.json``, models without their account, ``PG*``.

    {"rag": {"embeddingModel": "text-embedding-3-small", "topK": 5, "hybridSearchWeight": 0.7, …}}

Some of its keys say together what one setting says: `rag_section` puts these together, and notes what has no effect.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from semlex.models.model_names import scheme_of
from semlex.settings import readers
from semlex.settings.table import FOREIGN_PREFIX, JSON_KEYS, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTION = "rag"
# Names of models that can be nothing but those of a provider.
_PROVIDERS = (
    (re.compile(r"text-embedding-(3-\w+|ada-002)"), "openai:"),
    (re.compile(r"(models/)?(gemini-embedding-[\w.-]+|text-embedding-004)"), "gemini:"),
)
_SWITCHES = ("hybridSearchEnabled", "contextualEnrichmentEnabled", "adaptiveRoutingEnabled")
_TEXTS = ("rerankerProvider", "adaptiveRoutingModel")
RAG_KEYS = (*JSON_KEYS, *_SWITCHES, *_TEXTS, "qa")
QA_KEYS = ("model", "temperature")
# rerankerProvider -> what stands in front of rerankerModel.
_RERANKERS = {"cohere": "cohere:", "jina": "jina:", "cross-encoder": "cross-encoder:", "local": ""}
_PROVIDER = readers.one_of("auto", "none", "llm", *_RERANKERS)
# The server that libpq would take: what names it, and how an address says the same.
SERVER_VARIABLES = {"PGSERVICE": "service", "PGHOST": "host", "PGHOSTADDR": "hostaddr"}


def embedding_model(name: Any) -> Any:
    """A model's name as ours; anything that is not one of a provider's names stays as it is."""
    for pattern, account in _PROVIDERS:
        if isinstance(name, str) and (found := pattern.fullmatch(name)):
            return account + (found[2] if found.re.groups > 1 else name)
    return name


def chat_model(name: Any) -> Any:
    """A language model's name as ours; ``VENDOR/MODEL`` alone is one of OpenRouter's."""
    is_bare = isinstance(name, str) and "/" in name and not scheme_of(name) and "://" not in name
    return f"openrouter:{name}" if is_bare else name


def libpq_server() -> tuple[str, str] | None:
    """The server that libpq's own variables name, as variable and address; None where they name none."""
    for variable, keyword in SERVER_VARIABLES.items():
        if value := os.environ.get(variable):
            quoted = value.replace("\\", "\\\\").replace("'", "\\'")
            return variable, f"{keyword}='{quoted}'"
    return None


def similar_variables() -> Iterator[tuple[str, str]]:
    """Variables that look like ours and are not read: each with the one that it may be meant for.

    The prefix is not semlex's alone, so that such a one is no error.
    """
    known = {variable for setting in SETTINGS for variable in setting.others if variable.startswith(FOREIGN_PREFIX)}
    bare = {variable.replace("_", ""): variable for variable in known}
    for variable in sorted(os.environ):
        if variable.startswith(FOREIGN_PREFIX) and variable not in known:
            near = _nearest(variable.replace("_", ""), list(bare))
            if near:
                yield variable, bare[near]


def rag_section(table: dict[str, Any], notes: list[str]) -> Iterator[tuple[str, str | None, Any]]:
    """The entries of a ``rag`` section: key, name of the setting (None where there is none), value."""
    given = {key: value for key, value in table.items() if value is not None}
    together = {"rerankerModel", "contextualEnrichmentModel", "enrichmentModel", "qa", *_SWITCHES, *_TEXTS}
    for key, value in given.items():
        if key not in together:
            setting = JSON_KEYS.get(key)
            is_model = setting is not None and setting.name == "embedding_model"
            is_chat = setting is not None and setting.name == "chat_model"
            read = embedding_model(value) if is_model else chat_model(value) if is_chat else value
            yield key, None if setting is None else setting.name, read
    if not _switched(given, "hybridSearchEnabled", default=True):
        yield "hybridSearchEnabled", "mode", "vector"
    yield from _reranker(given, notes)
    is_enriched = _switched(given, "contextualEnrichmentEnabled", default=True)
    for key in ("contextualEnrichmentModel", "enrichmentModel"):
        if key in given and is_enriched:
            yield key, "enrichment_model", chat_model(given[key])
        elif key in given:
            notes.append(f"{key} has no effect: contextualEnrichmentEnabled is false")
    yield from _answers(given, notes)


def _reranker(given: dict[str, Any], notes: list[str]) -> Iterator[tuple[str, str, Any]]:
    model = _checked(given, "rerankerModel", readers.text)
    provider = _checked(given, "rerankerProvider", _PROVIDER)
    if provider is None:
        if model is not None:
            yield "rerankerModel", "reranker_model", model
    elif provider == "none":
        yield "rerankerProvider", "reranker_model", "none"
        if model is not None:
            notes.append("rerankerModel has no effect: rerankerProvider is none")
    elif provider == "auto":
        yield "rerankerProvider", "reranker_model", "auto" if model is None else f"auto:{chat_model(model)}"
    elif provider == "llm":
        if model is None:
            raise ValueError("rerankerProvider is llm, so rerankerModel must name a language model")
        named = str(chat_model(model))
        yield "rerankerModel", "reranker_model", f"llm{'+' if '://' in named else ':'}{named}"
    elif model is None and provider != "cohere":
        raise ValueError(f"rerankerProvider is {provider}, so rerankerModel must name its model")
    else:
        front = _RERANKERS[provider]
        yield "rerankerModel", "reranker_model", "cohere" if model is None else f"{front}{model}"


def _answers(given: dict[str, Any], notes: list[str]) -> Iterator[tuple[str, str | None, Any]]:
    qa = given.get("qa", {})
    if not isinstance(qa, dict):
        raise ValueError("qa must be an object")  # noqa: TRY004 - one kind of error for all readers
    for key, value in qa.items():
        if key == "model" and value is not None:
            yield "qa.model", "chat_model", chat_model(value)
        elif key == "temperature":
            if value not in (None, 0):
                notes.append("qa.temperature has no effect: language models are asked with temperature 0")
        elif key != "model":
            yield f"qa.{key}", None, value
    model = given.get("adaptiveRoutingModel")
    if _switched(given, "adaptiveRoutingEnabled", default=False):
        yield "adaptiveRoutingEnabled", "route", "rules" if model is None else "chat"
        answers = qa.get("model", given.get("chatModel"))
        if model is not None and chat_model(model) != chat_model(answers):
            raise ValueError("adaptiveRoutingModel must be that of qa.model: one language model does both")
    elif model is not None:
        notes.append("adaptiveRoutingModel has no effect: adaptiveRoutingEnabled is not true")


def _switched(given: dict[str, Any], key: str, *, default: bool) -> bool:
    found = _checked(given, key, readers.switch)
    return default if found is None else bool(found)


def _checked(given: dict[str, Any], key: str, read: Any) -> Any:
    if key not in given:
        return None
    try:
        return read(given[key])
    except ValueError as error:
        raise ValueError(f"{key} {error}") from None


def _nearest(name: str, known: list[str]) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415 - only for what looks wrong

    near = get_close_matches(name, known, 1, cutoff=0.8)
    return near[0] if near else None
