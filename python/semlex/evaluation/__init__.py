"""Measures search quality on your own data with judged queries: each search, each fusion and the reranker."""

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
