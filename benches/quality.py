"""Search quality.

nDCG@10 on judged collections, beside bm25s with Snowball stems and "the usual stack": `plainto_tsquery` with
`ts_rank_cd`, fused by reciprocal rank with the same vectors. These are static embeddings for English, which fit no
other language.

`--data FOLDER` names a folder of collections in BEIR's layout, each with a META.json that names its language. Without
it the small set of the tests is measured, without bars. `--model` adds another model.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benches.baselines.usual_hybrid import CONFIGURATIONS, usual_hybrid
from benches.measuring import Table
from benches.preparing import python_of
from semlex import PostgreSQLRetriever, _core
from semlex.embedding.registry import choose_embedder
from semlex.evaluation import JudgedSet, evaluate, read_judged_set
from semlex.evaluation.datasets import read_corpus
from semlex.evaluation.evaluate import searchable
from semlex.evaluation.metrics import measure_named, randomisation_p, ranking
from semlex.store.keyword.base import TYPED_BIT, folded
from semlex.store.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from benches.measuring import Bench
    from semlex import Document
    from semlex.embedding.base import Embedder
    from semlex.evaluation import Report

OWN_SETS = Path(__file__).resolve().parent.parent / "tests" / "data" / "judged"
ENGINE, FUSION = "bm25", "score"
MAIN = "ndcg@10"
WITHOUT_SPACES = {"ja", "km", "lo", "my", "th", "zh"}
QUICK_QUERIES, QUICK_DOCUMENTS = 50, 1_000
K1, B = 1.2, 0.75
MAX_TERMS = 64
IDENTICAL = 1e-5  # relative difference of scores up to which two are the same


@dataclass(slots=True)
class Measured:
    """One set, measured: a value of nDCG@10 a query for each contender."""

    name: str
    language: str
    values: dict[str, np.ndarray]
    identical: float = math.nan  # share of queries whose first 100 are those of plain BM25
    error: float = math.nan  # greatest relative difference of their scores

    def mean(self, contender: str) -> float:
        return float(self.values[contender].mean())

    def better_leg(self, prefix: str = "") -> str:
        return max((prefix + "vector", "keyword"), key=self.mean)

    def gain(self, contender: str, baseline: str) -> float:
        return self.mean(contender) - self.mean(baseline)


def run(bench: Bench, *, quick: bool, state: Path, data: Path | None = None, model: str | None = None) -> None:
    """Takes the figures."""
    folders = sorted(path.parent for path in (data or OWN_SETS).glob("*/META.json"))
    measured = []
    temporary = Path(tempfile.mkdtemp(prefix="semlex-bench-", dir="/tmp")).resolve()
    temporary.chmod(0o711)
    try:
        with EmbeddedServer(temporary / "server") as server:
            for folder in folders:
                documents = list(read_corpus(folder))
                if quick and len(documents) > QUICK_DOCUMENTS:
                    print(f"  {folder.name}: left out, {len(documents):,} documents")
                    continue
                measured.append(measure(folder, documents, server.url, state, quick=quick, model=model))
                show(measured[-1])
    finally:
        subprocess.run(["rm", "-rf", str(temporary)], check=True)
    if not measured:
        sys.exit(f"no judged set to measure in {data or OWN_SETS}")
    report(bench, measured, with_bars=data is not None and not quick, model=model)


def measure(
    folder: Path, documents: list[Document], url: str, state: Path, *, quick: bool, model: str | None
) -> Measured:
    """All contenders on one set."""
    language = json.loads((folder / "META.json").read_text(encoding="utf-8"))["language"]
    judged = read_judged_set(folder).limited(QUICK_QUERIES if quick else None)
    judged = JudgedSet({query: searchable(text)[0] for query, text in judged.queries.items()}, judged.judgements)
    texts = {document.id: document.content for document in documents}
    static = choose_embedder("static").model
    assert static is not None
    found, unaccented = asyncio.run(ours(url, language, documents, judged, static))
    result = Measured(folder.name, language, {name: system.values[MAIN] for name, system in found.systems.items()})
    result.values |= {"without accents": unaccented} if unaccented is not None else {}
    result.identical, result.error = against_plain(language, texts, judged, found.systems["keyword"].run)
    usual = usual_hybrid(
        url,
        language,
        texts,
        static.embed_documents(list(texts.values())),
        judged.queries,
        np.array([static.embed_query(text) for text in judged.queries.values()]),
    )
    result.values["usual"] = values_of(usual, judged)
    if python_of(state, "bm25s").exists():
        result.values["bm25s"] = values_of(bm25s(state, language, texts, judged), judged)
    if model is not None and language == "en":
        embedder = choose_embedder(model).model
        assert embedder is not None
        named, _ = asyncio.run(ours(url, language, documents, judged, embedder))
        result.values |= {f"model {name}": named.systems[name].values[MAIN] for name in ("vector", FUSION)}
        embedder.close()
    static.close()
    return result


async def ours(
    url: str, language: str, documents: list[Document], judged: JudgedSet, embedder: Embedder
) -> tuple[Report, np.ndarray | None]:
    """Both legs and the default fusion; and the keyword leg for queries typed without accents, where there are any."""
    async with PostgreSQLRetriever(
        url, embedder, "none", collection="quality", language=language, keyword=ENGINE
    ) as retriever:
        try:
            await retriever.add_documents(documents)
            found = await evaluate(retriever, judged.queries, judged.judgements, fusions=[FUSION])
            plain = {query: without_accents(text) for query, text in judged.queries.items()}
            if language in WITHOUT_SPACES or plain == judged.queries:
                return found, None
            again = await evaluate(retriever, plain, judged.judgements, fusions=[])
            return found, again.systems["keyword"].values[MAIN]
        finally:
            await retriever.drop_collection()


def without_accents(text: str) -> str:
    """The text as somebody types it who leaves accents out."""
    return "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))


def values_of(run: dict[str, dict[str, float]], judged: JudgedSet) -> np.ndarray:
    function, depth = measure_named(MAIN)
    return function(run, judged.judgements, depth)


def bm25s(state: Path, language: str, texts: dict[str, str], judged: JudgedSet) -> dict[str, dict[str, float]]:
    """bm25s with its own tokens, in an environment of its own."""
    script = Path(__file__).parent / "baselines" / "bm25s_search.py"
    stemmer = CONFIGURATIONS.get(language)  # Postgres and PyStemmer name Snowball's algorithms alike
    asked = {"language": language, "stemmer": stemmer, "documents": texts, "queries": judged.queries, "k": 10}
    done = subprocess.run(
        [str(python_of(state, "bm25s")), str(script)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def against_plain(
    language: str, texts: dict[str, str], judged: JudgedSet, found: dict[str, dict[str, float]]
) -> tuple[float, float]:
    """Compares the keyword leg's first 100 with plain BM25 over the same terms.

    Returns:
        Share of queries that have the same documents in the same order (those of equal score in any order), and the
        greatest relative difference of a score.
    """
    analyzer = _core.Analyzer(language)
    postings: dict[str, dict[str, int]] = defaultdict(dict)
    lengths = {}
    for document, text in texts.items():
        terms = Counter(analyzer.terms(text))
        lengths[document] = len(folded(terms.elements()))
        for term, frequency in terms.items():
            postings[term][document] = frequency
    average = sum(lengths.values()) / len(lengths)
    norms = {document: K1 * (1 - B + B * length / average) for document, length in lengths.items()}
    same = compared = 0
    error = 0.0
    for query, text in judged.queries.items():
        asked = analyzer.query(text, MAX_TERMS)
        if asked.phrases or asked.excluded:
            continue  # these say more than which words to look for
        scores: dict[str, float] = defaultdict(float)
        idfs: dict[int, float] = {}
        for slot, term in asked.wanted:
            documents = postings.get(term, {})
            idfs[slot] = math.log(1 + (len(texts) - len(documents) + 0.5) / (len(documents) + 0.5))
            # A word with accents adds what its idf is above that of the folded word.
            idf = idfs[slot] - (idfs[slot & ~TYPED_BIT] if slot & TYPED_BIT else 0.0)
            if idf <= 0.0:
                continue  # a document with this term alone is not found
            for document, frequency in documents.items():
                scores[document] += idf * frequency * (K1 + 1) / (frequency + norms[document])
        expected = sorted(scores.values(), reverse=True)[:100]
        of_ours = [scores.get(document, 0.0) for document in ranking(found[query])]
        compared += 1
        same += len(expected) == len(of_ours) and np.allclose(of_ours, expected, rtol=IDENTICAL, atol=0)
        for document, score in found[query].items():
            error = max(error, abs(score - scores.get(document, 0.0)) / max(score, 1e-9))
    return same / max(compared, 1), error


def show(measured: Measured) -> None:
    """One set's means."""
    means = "  ".join(f"{name} {measured.mean(name):.4f}" for name in measured.values)
    print(f"  {measured.name} ({measured.language}, {len(measured.values[FUSION])} queries): {means}")
    better = measured.better_leg()
    p = randomisation_p(measured.values[FUSION], measured.values[better])
    print(f"    {FUSION} against {better}: {measured.gain(FUSION, better):+.4f}, p {p:.4f}", flush=True)


def report(bench: Bench, measured: list[Measured], *, with_bars: bool, model: str | None) -> None:
    """The means of every set, and every bar over the sets that it concerns."""
    contenders = list(dict.fromkeys(name for item in measured for name in item.values))
    rows = [
        [
            f"{item.name} ({item.language})",
            str(len(item.values[FUSION])),
            *(f"{item.mean(name):.4f}" if name in item.values else "" for name in contenders),
        ]
        for item in measured
    ]
    bench.tables.append(Table("", ["collection", "queries", *contenders], rows))
    english = [item for item in measured if item.language == "en"]
    others = [item for item in measured if item.language != "en"]

    def at_least(name: str, values: list[float], bar: float, *, worst: bool = False) -> None:
        if values:
            value = min(values) if worst else sum(values) / len(values)
            bench.at_least(name, value, unit=MAIN, bar=bar if with_bars else None)
        else:
            bench.unmeasured(name, MAIN, bar, "no set for it, or its environment or model is missing")

    def gains(sets: list[Measured], ours: str, baseline: str) -> list[float]:
        return [item.gain(ours, baseline) for item in sets if ours in item.values and baseline in item.values]

    spaced = [item for item in measured if item.language not in WITHOUT_SPACES]
    at_least("keyword over bm25s, mean", gains(spaced, "keyword", "bm25s"), 0.0)
    at_least("keyword over bm25s, worst", gains(spaced, "keyword", "bm25s"), -0.012, worst=True)
    # Exact is exact, on small sets too.
    bench.at_least("same 100 as plain BM25, worst", min(item.identical for item in measured), unit="", bar=0.998)
    worst = max(item.error for item in measured)
    bench.at_most("score, off from plain BM25", worst * 1e6, unit="millionths", bar=IDENTICAL * 1e6)
    for language, bar in (("zh", 0.90), ("th", 0.96)):
        at_least(f"keyword, {language}", [i.mean("keyword") for i in measured if i.language == language], bar)
    spanish = [item for item in measured if item.language == "es"]
    at_least("es without accents, worst", gains(spanish, "without accents", "keyword"), -0.005, worst=True)
    over_leg = {item.name: item.gain(FUSION, item.better_leg()) for item in measured}
    at_least("en, over the better search, mean", [over_leg[item.name] for item in english], 0.0)
    at_least("en, over the better search, worst", [over_leg[item.name] for item in english], -0.005, worst=True)
    at_least("others, over the better search, worst", [over_leg[item.name] for item in others], -0.02, worst=True)
    at_least("en, over the usual stack, mean", gains(english, FUSION, "usual"), 0.04)
    at_least("others, over the usual stack, worst", gains(others, FUSION, "usual"), 0.15, worst=True)
    named = [item for item in english if model is not None]
    fused = f"model {FUSION}"
    at_least("en, with the model, mean", [item.mean(fused) for item in named], 0.77)
    over_leg = {item.name: item.gain(fused, item.better_leg("model ")) for item in named}
    at_least("en, with the model, over the better search", list(over_leg.values()), 0.0, worst=True)
