"""Measuring a search with judged queries: how good each leg, each fusion and the reranker is on one's own data.

judged = read_judged_set(Path("my-set"))
report = await evaluate(retriever, judged.queries, judged.judgements)
print(report.systems["rrf"].mean("ndcg@10"))
"""

from semlex.evaluation.calibrate import CalibrationReport, calibrate
from semlex.evaluation.datasets import JudgedSet, read_judged_set, read_judgements, read_queries
from semlex.evaluation.evaluate import Report, System, evaluate
from semlex.evaluation.tune import TuningReport, tune

__all__ = [
    "CalibrationReport",
    "JudgedSet",
    "Report",
    "System",
    "TuningReport",
    "calibrate",
    "evaluate",
    "read_judged_set",
    "read_judgements",
    "read_queries",
    "tune",
]
