"""docs/reference/figures.md is what the kept runs of the benches make of it, and only whole, full runs are kept."""

import argparse
import json
import re
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from benches import BENCHES, __main__, figures, kept_runs
from benches.kept_runs import Recording
from benches.measuring import Bench, Figure

RUNS = [run for bench in BENCHES for run in kept_runs.read(bench)]
DOCS = figures.PAGE.parent
NAN = float("nan")


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A folder of results of its own, and a page of its own."""
    monkeypatch.setattr(kept_runs, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(figures, "PAGE", tmp_path / "figures.md")
    monkeypatch.setattr(__main__, "STATE", tmp_path / "state")
    monkeypatch.setattr(__main__, "refuse_debug_build", lambda: None)
    return tmp_path / "results"


@pytest.fixture
def bench(results, monkeypatch):
    """Runs `./x bench rrf` with other work."""
    for name in ("SEMLEX_BENCH_LAYERS", "SEMLEX_BENCH_SECONDS"):
        monkeypatch.delenv(name, raising=False)

    def run(work, *options):
        module = SimpleNamespace(run=lambda bench, *, quick, state: work(bench))  # noqa: PLW0108 - of these options
        monkeypatch.setitem(sys.modules, "benches.rrf", module)
        return __main__.main(["rrf", *options])

    return run


def value(number):
    return lambda bench: bench.at_least("x", number, unit="", bar=None)


def kept():
    return {run.variant: run.figures["x"].ours for run in kept_runs.read("rrf")}


def test_what_is_kept_is_complete_and_shown():
    assert figures.PAGE.read_text(encoding="utf-8") == figures.page()
    assert {path.name for path in kept_runs.RESULTS.iterdir()} <= {f"{bench}.json" for bench in BENCHES}
    variants = [(run.bench, run.variant) for run in RUNS]
    assert len(variants) == len(set(variants))
    titles = re.findall(r"^## (.+)$", figures.page(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title).replace(" ", "-").lower() for title in titles}
    pages = [path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")]
    linked = {anchor for page in pages for anchor in re.findall(r"figures\.md#([\w-]+)", page)}
    linked |= set(re.findall(r"\]\(#([\w-]+)\)", figures.page()))
    assert linked - anchors == set()
    assert linked
    for run in RUNS:
        assert datetime.fromisoformat(run.date).tzinfo is not None
        assert re.fullmatch("[0-9a-f]{7,}", run.commit)
        assert set(run.machine) == {"system", "processor", "cores"}
        assert all(run.machine.values())
        assert run.versions
        assert run.figures or run.tables
        if run.taken == "by hand":
            assert isinstance(run.load, str)
            assert run.load
        else:
            assert isinstance(run.load, dict)
            assert set(run.load) == {"before", "after"}
            assert run.clean is not None
            assert run.command
        for table in run.tables:
            assert {len(cells) for cells in table.rows} == {len(table.columns)}
        for figure in run.figures.values():  # no verdict is softer
            given = (figure.ours, figure.baseline, figure.ratio)
            assert figure == Figure.judged(*given, unit=figure.unit, bar=figure.bar, better=figure.better)


def test_a_run_is_kept_and_shown_and_values_that_are_not_numbers_are_null(results, bench):
    assert bench(lambda bench: bench.at_most("time", 1.5, unit="ms", bar=1)) == 1
    (run,) = kept_runs.read("rrf")
    assert (run.variant, run.command, run.taken) == ("full", "./x bench rrf", "by the bench")
    assert "| time | 1.5 ms | ≤ 1 ms | not met |" in figures.PAGE.read_text(encoding="utf-8")
    assert [path.name for path in results.iterdir()] == ["rrf.json"]
    for number in (NAN, float("inf"), -float("inf")):  # becomes null and comes back
        (results / "rrf.json").unlink()

        def work(bench, number=number):
            bench.at_least("x", 1, unit="", bar=None)
            bench.at_most("y", number, unit="", bar=1)

        assert bench(work) == 0
        ((stored),) = json.loads((results / "rrf.json").read_text(encoding="utf-8"))
        none = dict.fromkeys(("ours", "baseline", "ratio", "met"))
        assert stored["figures"]["y"] == {**none, "unit": "", "bar": 1, "better": "lower"}
        (run,) = kept_runs.read("rrf")
        assert run.figures["y"] == Figure(None, None, None, "", 1, "lower", None)
        assert "| y | not measured |" in figures.page()


def test_runs_replace_those_of_their_variant_and_quick_ones_no_full_one(bench, monkeypatch):
    bench(value(1))
    for number, option in ((2, "--quick"), (3, "--no-keep")):
        bench(value(number), option)
        assert kept() == {"full": 1}
    bench(value(1))
    bench(value(2), "--quick", "--keep")
    monkeypatch.setenv("SEMLEX_BENCH_LAYERS", "1")
    bench(value(3))
    monkeypatch.delenv("SEMLEX_BENCH_LAYERS")
    bench(value(4))
    assert kept() == {"full": 4, "quick": 2, "SEMLEX_BENCH_LAYERS=1": 3}


def test_a_run_that_fails_or_measured_less_or_cannot_be_written_replaces_nothing(results, bench, capsys, monkeypatch):
    def unmeasured(bench):
        bench.at_least("y", 1, unit="", bar=None)
        bench.unmeasured("x", "", None, "its environment is missing")

    bench(unmeasured)  # no earlier run measured anything
    assert kept() == {"full": None}
    bench(value(1))
    before = (results / "rrf.json").read_bytes(), figures.PAGE.read_bytes()

    def fails(bench):
        bench.at_least("x", 2, unit="", bar=None)
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        bench(fails)
    assert ((results / "rrf.json").read_bytes(), figures.PAGE.read_bytes()) == before
    bench(unmeasured)
    assert kept() == {"full": 1}
    assert "could not measure what the kept run did: x" in capsys.readouterr().err
    bench(lambda bench: bench.unmeasured("another", "", None, "its environment is missing"))
    assert kept() == {"full": 1}
    assert "it measured nothing" in capsys.readouterr().err

    def full(self, text, encoding):
        self.write_bytes(text.encode(encoding)[:20])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="no space"):
        bench(value(2))
    assert ((results / "rrf.json").read_bytes(), kept()) == (before[0], {"full": 1})
    assert [path.name for path in results.iterdir()] == ["rrf.json"]


def test_commits_bars_and_commands(monkeypatch, bench):
    asked = []
    monkeypatch.setattr(kept_runs, "_git", lambda *arguments: asked.append(arguments) or "")
    assert Recording("full", "./x bench rrf").run(Bench("rrf")).clean
    assert {":!benches/results", ":!docs/reference/figures.md"} < set(asked[-1])
    assert bench(lambda bench: bench.at_most("x", 101, unit="ms", bar=100), "--no-keep") == 1
    assert bench(lambda bench: bench.at_most("x", 100, unit="ms", bar=100), "--no-keep") == 0
    options = argparse.Namespace(quick=True, million=False, model_folder="/models/small")
    _, command = __main__.variant_and_command("onnx", options)
    assert command == "./x bench onnx --quick --model-folder small"
    for given, better, bar, verdict in [
        ((100,), "lower", 100, "met"),
        ((101,), "lower", 100, "not met (within 10 %)"),
        ((111,), "lower", 100, "not met"), ((10, 1, 2), "higher", 2, "met"),
        ((10, 1, 1.9), "higher", 2, "not met (within 10 %)"),
        ((10, 1, 1.7), "higher", 2, "not met"),
        ((-0.001,), "higher", 0, "not met"), ((NAN,), "higher", 1, ""), ((1,), "higher", None, ""),
    ]:  # fmt: skip
        figure = Figure.judged(*given, unit="", bar=bar, better=better)
        assert figure.verdict == verdict
        assert figure.met is (None if not verdict else verdict == "met")


def test_each_figure_of_a_million_is_shown_once(results):
    for newest, shown in [("full", {"full": ["a"], "million": ["1M"]}), ("million", {"million": ["1M", "a"]})]:
        for variant, names in (("full", ["a"]), ("million", ["a", "1M"])):
            bench = Bench("rrf")
            bench.unmeasured("1M", "", 1, "not asked for")
            for name in names:
                bench.at_least(name, 1, unit="", bar=1)
            run = Recording(variant, f"./x bench rrf # {variant}").run(bench)
            kept_runs.keep(replace(run, date="2026-11-24T12:00Z" if variant == newest else "2026-11-24T11:00Z"))
        text = figures.page().partition("## Rank fusion")[2].partition("## ")[0]
        found = {}
        for table, variant in re.findall(r"((?:^\|.*\n)+)\n`./x bench rrf # (\w+)`", text, re.MULTILINE):
            found[variant] = re.findall(r"^\| (a|1M) \|", table, re.MULTILINE)
        assert found == shown
        assert text.count("./x bench rrf") == len(shown)
