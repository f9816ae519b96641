"""``progress="bar"``: bars on a terminal, an output that changes in a notebook, nothing elsewhere."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.ingest.progress import Progress
from semlex.progress import UPDATE_SECONDS, NotebookProgress, check_progress, shown
from semlex.types.display import UNSAFE
from tests.unit.test_display import Elements

STEPS = [
    Progress("read", 1, 2, "files"),
    Progress("write [bold]\x1b", 5, None, "rows"),
    Progress("read", 2, 2, "files"),
]
totals = st.none() | st.integers(0, 10**9)
steps = st.lists(
    st.tuples(
        st.floats(0, 1), st.builds(Progress, st.text(max_size=20), st.integers(0, 10**9), totals, st.just("rows"))
    ),
    max_size=30,
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bars_are_drawn_on_a_terminal_and_nothing_where_nobody_looks(capsys, monkeypatch):
    with shown("bar") as tell:
        assert tell is None
    with shown(None) as tell:
        assert tell is None
    told = []
    with shown(told.append) as tell:
        assert tell == told.append
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with shown("bar") as tell:
        assert tell is not None
        for step in STEPS:
            tell(step)
    drawn = terminal.getvalue()
    assert "write [bold]\\x1b (rows)" in drawn
    assert "2/2" in drawn
    assert drawn.endswith("\x1b[2K")
    for wrong in [True, 1, "bars", "", b"bar", ["bar"]]:
        for refusing in (shown, check_progress):
            with pytest.raises(ConfigurationError, match="progress must be function or 'bar'"):
                refusing(wrong)


@given(steps)
def test_a_notebook_is_told_the_last_of_every_stage_and_seldom(events):
    now = 0.0
    pages = []
    lines = []
    progress = NotebookProgress(lambda page, line: pages.append(page) or lines.append(line), lambda: now)
    due = 1
    last = {}
    for seconds, step in events:
        now += seconds
        progress(step)
        last[step.stage] = step
        due += step.done == step.total
    assert len(pages) <= now / UPDATE_SECONDS + due
    progress.end("done")
    ended = f"done after {now:.1f} s"
    assert lines[-1].endswith(f"; {ended}" if last else ended)
    assert last or lines[-1] == ended
    assert UNSAFE.search(lines[-1]) is None
    shown_last = Progresses(pages[-1])
    assert shown_last.figures == [
        f"{one.done:,} rows" if one.total is None else f"{one.done:,} of {one.total:,} rows" for one in last.values()
    ]


class Progresses(Elements):
    """A page of progress: the third cell of each row."""

    def __init__(self, page):
        self.figures = []
        self.cells = 0
        super().__init__(page)

    def handle_starttag(self, tag, attrs):
        if tag == "progress":
            assert {name for name, _ in attrs} <= {"max", "value"}
            self.open.append(tag)
            return
        super().handle_starttag(tag, attrs)
        self.cells = 0 if tag == "tr" else self.cells + (tag == "td")

    def handle_data(self, data):
        super().handle_data(data)
        if self.cells == 3 and "td" in self.open:
            self.figures.append(data)
