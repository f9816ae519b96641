"""Support.

Whether a search can tell that its question has no answer (`results.support`): questions on the manuals of
[Structure](#structure) asked of their own manual, of another one, and of nothing in it
(`tests/data/manuals/unrelated.txt`). With `--data FOLDER` also questions of its sets, of which every second group of
documents is left out, of other sets, and short queries of terms (`manuals/rewrites.jsonl` there). Curves are learned
here and judged on a collection that was left out; bars are those of the manuals. `--model` takes another model than the
static one.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass, fields
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from benches.structure import MANUALS, QUESTIONS, questions_of, unpacked
from semlex import PostgreSQLRetriever
from semlex.evaluation import read_judged_set
from semlex.evaluation.calibrate import area
from semlex.evaluation.datasets import read_corpus
from semlex.search import results as judging
from semlex.store.postgres.embedded.server import EmbeddedServer
from semlex.types.confidence import LEAST_LOGIT, LIKELY_LOGIT, Evidence, Support

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from benches.measuring import Bench

PARTS = tuple(one.name for one in fields(Evidence))
CURVES = {"": PARTS, ", words and overlap": PARTS[:2], ", words": PARTS[:1], ", vectors": PARTS[2:]}
AREA_BAR, UNLIKELY_BAR = 0.85, 0.05
# A set in halves: so many documents behind each other are in the collection, as many are not.
GROUPS = {"xquad": 5, "squad": 20}
PER_SET = 120
FOREIGN = 30
SMALL = (4, 12, 40)
LANGUAGES = {"es": "spanish", "de": "german", "en": "english"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that was asked of a collection, and what the search showed."""

    collection: str
    kind: str
    has_answer: bool
    evidence: Evidence


class Asking:
    """Asks questions, and notes what is judged."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._seen: list[Evidence] = []

    def judge(self, evidence: Evidence, model: str | None, *, coverage: float | None, chunks: int) -> Support:
        """Stands for `support_of`."""
        del model, coverage, chunks
        self._seen.append(evidence)
        return "unsure"

    async def ask(self, retriever: PostgreSQLRetriever, kind: str, questions: Iterable[str], *, answered: bool) -> None:
        """Asks questions of a collection."""
        name = retriever.names.collection
        # Small collections are one when curves are judged.
        group = "small" if name.startswith("small") else name
        for question in questions:
            self._seen.clear()
            await retriever.search(question.replace('"', " "), 5, rerank=False)
            evidence = self._seen[0] if self._seen else Evidence(words=0.0, overlap=0.0)
            self.asked.append(Asked(group, kind, answered, evidence))


def run(bench: Bench, *, quick: bool, state: Path, data: Path | None = None, model: str | None = None) -> None:
    """Takes the figures."""
    shutil.rmtree(state / "support", ignore_errors=True)
    asking = Asking()
    usual, judging.support_of = judging.support_of, asking.judge
    try:
        with EmbeddedServer(state / "support") as server:
            asyncio.run(ask_all(asking, server.url, state, None if quick else data, model or "static"))
    finally:
        judging.support_of = usual
    report(bench, asking.asked)


def sets_of(data: Path) -> dict[str, Path]:
    """The judged sets of a folder, by name."""
    return {path.parent.name: path.parent for path in sorted(data.glob("*/META.json"))}


def terms_of(path: Path) -> dict[str, list[str]]:
    """Terms for the questions on each manual, with and without names, if the folder has them."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        one = json.loads(line)
        found.setdefault(one["manual"], []).extend(text for text in (one["terms"], one["plain"]) if text)
    return found


async def ask_all(asking: Asking, url: str, state: Path, data: Path | None, model: str) -> None:
    """Asks every question of every collection."""
    unrelated = (QUESTIONS / "unrelated.txt").read_text(encoding="utf-8").splitlines()
    own = {manual.name: [one["question"] for one in questions_of(manual)] for manual in MANUALS}
    sets = {} if data is None else sets_of(data)
    judged = {name: read_judged_set(path) for name, path in sets.items() if name[-2:] not in ("th", "zh")}
    english = [name for name in judged if name[-2:] not in LANGUAGES or name.endswith("en")]
    foreign = {name: Random(1).sample(list(judged[name].queries.values()), FOREIGN) for name in english}
    terms = {} if data is None else terms_of(data / "manuals" / "rewrites.jsonl")
    for manual in MANUALS:
        async with PostgreSQLRetriever(url, model, "none", collection=manual.name) as retriever:
            await retriever.index(unpacked(manual, state))
            for name, questions in own.items():
                is_own = name == manual.name
                await asking.ask(retriever, "own" if is_own else "wrong", questions, answered=is_own)
            for name, texts in terms.items():
                kind = "terms" if name == manual.name else "terms of another"
                await asking.ask(retriever, kind, texts, answered=name == manual.name)
            await asking.ask(retriever, "unrelated", unrelated, answered=False)
            for questions in foreign.values():
                await asking.ask(retriever, "foreign", questions, answered=False)
    for name, one in judged.items():
        documents = list(read_corpus(sets[name]))
        size = next((size for start, size in GROUPS.items() if name.startswith(start)), 0)
        kept = {doc.id for number, doc in enumerate(documents) if not size or number // size % 2 == 0}
        language = LANGUAGES.get(name[-2:], "english")
        relevant = {query: {id_ for id_, grade in own_.items() if grade > 0} for query, own_ in one.judgements.items()}
        queries = list(relevant)
        Random(2).shuffle(queries)
        async with PostgreSQLRetriever(
            url, model, "none", collection=name.replace("-", "_"), language=language
        ) as retriever:
            await retriever.add_documents([doc for doc in documents if doc.id in kept])
            for kind, answered in (("own", True), ("left out", False)):
                chosen = [query for query in queries if bool(relevant[query] & kept) is answered][:PER_SET]
                await asking.ask(retriever, kind, [one.queries[query] for query in chosen], answered=answered)
            if name in english:
                await asking.ask(retriever, "unrelated", unrelated, answered=False)
                others = [questions for other, questions in (foreign | own).items() if other != name]
                await asking.ask(retriever, "foreign", [text for some in others for text in some[:15]], answered=False)
        for size in SMALL if name == "xquad-en" else ():
            for start in range(0, 240, 40):
                few = documents[start : start + size]
                ids = {doc.id for doc in few}
                near = {doc.id for doc in documents[start : start + 40]}
                async with PostgreSQLRetriever(url, model, "none", collection=f"small_{size}_{start}") as retriever:
                    await retriever.add_documents(few)
                    chosen = [one.queries[query] for query in queries if relevant[query] & ids][:15]
                    await asking.ask(retriever, "own", chosen, answered=True)
                    await asking.ask(retriever, "unrelated", unrelated[start // 4 : start // 4 + 10], answered=False)
                    chosen = [one.queries[query] for query in queries if not relevant[query] & near][:10]
                    await asking.ask(retriever, "left out", chosen, answered=False)


def learned(rows: NDArray[np.float64], answered: NDArray[np.bool_], groups: NDArray[Any]) -> NDArray[np.float64]:
    """Intercept and weights of a logistic regression in which collections, and both outcomes in each, count equally."""
    shares = np.zeros(len(rows))
    for group in np.unique(groups):
        for outcome in (False, True):
            own = (groups == group) & (answered == outcome)
            shares[own] = 1 / max(int(own.sum()), 1)
    inputs = np.column_stack([np.ones(len(rows)), rows])
    weights = np.zeros(inputs.shape[1])
    for _ in range(50):
        expected = 1 / (1 + np.exp(-np.clip(inputs @ weights, -30, 30)))
        curvature = (inputs * (shares * expected * (1 - expected))[:, None]).T @ inputs
        penalty = 1e-6 * np.eye(len(weights))
        step = np.linalg.solve(curvature + penalty, inputs.T @ (shares * (expected - answered)) + 1e-6 * weights)
        weights = weights - step
    return weights


def report(bench: Bench, asked: list[Asked]) -> None:
    """Shows the curves, and what each says of a collection that it was not learned from."""
    groups = np.array([one.collection for one in asked])
    kinds = np.array([one.kind for one in asked])
    answered = np.array([one.has_answer for one in asked])
    of_manual = np.isin(groups, [manual.name for manual in MANUALS])
    for name, parts in CURVES.items():
        rows = np.array([[getattr(one.evidence, part) or 0.0 for part in parts] for one in asked])
        logits = np.zeros(len(asked))
        for group in np.unique(groups):
            out = groups == group
            weights = learned(rows[~out], answered[~out], groups[~out])
            logits[out] = weights[0] + rows[out] @ weights[1:]
        whole = learned(rows, answered, groups)
        values = ", ".join(f"{part}={value:.3f}" for part, value in zip(("intercept", *parts), whole, strict=True))
        print(f"    curve{name}: {values}", flush=True)
        own = of_manual & (kinds == "own")
        for kind in ("wrong", "unrelated"):
            both = own | (of_manual & (kinds == kind))
            figure = area(logits[both], answered[both]) or 0.0
            bench.at_least(f"manuals{name}: own against {kind}", figure, unit="area", bar=None if name else AREA_BAR)
        both = own | (of_manual & np.isin(kinds, ["wrong", "unrelated"]))
        figure = area(logits[both], answered[both]) or 0.0
        bench.at_least(f"manuals{name}: own against both", figure, unit="area", bar=None if name else AREA_BAR)
        for kind in ("own", "terms", "wrong", "unrelated"):
            if kind not in kinds:
                continue
            some = of_manual & (kinds == kind)
            said = float((logits[some] < LEAST_LOGIT).mean())
            likely = float((logits[some] >= LIKELY_LOGIT).mean())
            bar = UNLIKELY_BAR if kind == "own" and not name else None
            bench.at_most(f"manuals{name}: {kind}, unlikely", said, unit="of questions", bar=bar)
            bench.at_most(f"manuals{name}: {kind}, likely", likely, unit="of questions", bar=None)
        for group in [] if name else np.unique(groups[~of_manual]):
            some = groups == group
            bench.at_least(
                f"{group}: own against others", area(logits[some], answered[some]) or 0.0, unit="area", bar=None
            )
            said = float((logits[some & answered] < LEAST_LOGIT).mean())
            bench.at_most(f"{group}: own, unlikely", said, unit="of questions", bar=None)
