"""Checks of models: those that are configured here, and those that collections were made with."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from semlex.diagnostics.check import Check
from semlex.types.checkups import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from semlex.diagnostics.check import Subject
    from semlex.diagnostics.doctor import ModelExamination


def findings_of_models(examinations: Iterable[ModelExamination]) -> Iterator[Finding]:
    """What is wrong with the models that are configured here."""
    for examined in examinations:
        if examined.problem is not None:
            yield Finding(
                "model_unusable",
                "error",
                f"{examined.role} model {examined.name}",
                "does not work here",
                examined.problem,
            )


async def check_model(subject: Subject) -> None:
    """Whether this machine makes the vectors that the collection has. Nothing that it names is opened."""
    stored, models = subject.collection.versions.answering, subject.models
    if stored is None:
        return
    tried = models.tried
    if tried is not None and models.is_same(tried.name, stored.model):
        if tried.identity is None:
            return  # it does not work, which is a finding already
        here = tried.identity
        if models.dimensions is None:
            here = replace(here, dimensions=stored.dimensions)
        if here.key != stored.identity_key:
            _differs(subject, f"this machine has {here.key}, it has {stored.identity_key}")
    elif tried is not None and models.is_said:
        _differs(subject, f"{tried.name} is named here, it has {stored.model}")
    else:
        problem = models.stored_problem(stored)
        if problem is not None:
            subject.find(
                "model_missing",
                "warning",
                f"has vectors of {stored.model!r}, which cannot be used here: only words answer",
                problem,
            )


def _differs(subject: Subject, what: str) -> None:
    named = "" if subject.models.tried is None else f" --model {shlex.quote(subject.models.tried.name)}"
    subject.find(
        "model_differs",
        "error",
        f"has vectors of another model than the one that is configured here: {what}",
        "name the collection's model (--model, SEMLEX_EMBEDDING_MODEL), or change the collection's",
        subject.command("reembed") + named,
    )


CHECKS = (Check("model", check_model),)
