"""Runs the diagnosis of a client, with its models."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from semlex.diagnostics.checks import ModelFacts, findings_of_models
from semlex.diagnostics.diagnosis import diagnose
from semlex.diagnostics.doctor import examine_embedder, examine_models
from semlex.embedding.registry import KEYWORDS_ONLY
from semlex.retriever.model_selection import same_model, stored_problem
from semlex.types.checkups import by_severity

if TYPE_CHECKING:
    from collections.abc import Callable

    from semlex.diagnostics.doctor import ModelExamination
    from semlex.retriever.resources import Resources
    from semlex.types.checkups import Diagnosis


async def diagnosis_of(resources: Resources, collection: str | None, tell: Callable[[str], None] | None) -> Diagnosis:
    """Run `Client.diagnose`."""
    options = resources.models
    named = options.embedding_model
    model = _name(options.default_model if named is None else named)
    reranker = _name(options.reranker_model)
    dimensions = options.dimensions or options.default_dimensions
    if tell is not None:
        tell("the models that are configured here")
    examined: list[ModelExamination] = []
    if model is not None or reranker is not None:
        tried = await asyncio.to_thread(examine_models, model, reranker, device=options.device, dimensions=dimensions)
        examined += tried.models
    if named is not None and not isinstance(named, str):
        own = await asyncio.to_thread(examine_embedder, named)
        examined.append(own)
        dimensions = None if own.identity is None else own.identity.dimensions
    findings = list(findings_of_models(examined))
    facts = ModelFacts(
        next((one for one in examined if one.role == "embedding"), None),
        dimensions,
        is_said=named is not None,
        is_same=same_model,
        # A caller who wants no model does not miss that of a collection.
        stored_problem=lambda stored: None if named == KEYWORDS_ONLY else stored_problem(stored, options),
    )
    found = await diagnose(resources.database, resources.server.schema, facts, collection=collection, tell=tell)
    return replace(found, findings=by_severity([*findings, *found.findings]))


def _name(model: object) -> str | None:
    """Return the name of a model that the diagnosis should try; None for a model without a name, "auto" and "none"."""
    return model if isinstance(model, str) and model not in (KEYWORDS_ONLY, "auto") else None
