"""Figures.

`./x bench` measures semlex beside its baselines, and writes this page from the newest run of each bench, which it keeps
in `benches/results`. Run `./x bench --prepare` once before: it makes the environments of the baselines, in the versions
that `benches/preparing.py` names.

The server is the embedded Postgres 18 with fsync on, unless a section names another. *Ratio* says how many times as
fast as the baseline semlex is: the median over pairs of runs in turn, unless a section says otherwise. *Bar* is the
target, set before the measurement. It applies to the ratio if there is one. "Within 10 %" marks a miss that the noise
of a shared machine could explain.

"Load" is the mean number of busy processes in the minute before a run, and in its last minute. Runs that were "written
down by hand" are older than the kept results; where only a range is known, the table shows the range.
"""

BENCHES = (
    "rrf",
    "copy",
    "load",
    "ray",
    "follow",
    "moving",
    "tokens",
    "chunk",
    "embed",
    "onnx",
    "rerank",
    "query",
    "analyzer",
    "bm25",
    "search",
    "index",
    "equal",
    "recall",
    "scale",
    "throughput",
    "peers",
    "filters",
    "ingest",
    "quality",
    "structure",
    "answers",
    "calibration",
    "support",
    "checkup",
    "enrich",
    "first_minute",
    "faces",
    "serve",
    "assistants",
    "spans",
)
