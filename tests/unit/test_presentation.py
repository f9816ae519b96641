"""What reaches the terminal: places that can be opened, marks that are the search's, and nothing that steers."""

import io
import json
import os
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from semlex import _core
from semlex.cli import output, terminal
from semlex.cli import terminal as progress_display
from semlex.cli.commands.collections import print_collections
from semlex.cli.output import best_match, location_of, number, print_json, print_results
from semlex.cli.reports import print_report
from semlex.cli.terminal import SafeConsole, marked_text, one_line, printable, progress_bar
from semlex.diagnostics.status import CountedCollection
from semlex.ingest.files.discovery import FileProblem
from semlex.ingest.progress import IndexReport, Progress
from semlex.progress import ProgressLines
from semlex.store.query.chunks import excerpts_of
from semlex.types.results import SearchResult, SearchResults

# All that a terminal may act upon: both sets of controls, and what turns the direction of writing.
STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
hostile = st.text(
    st.sampled_from("\x1b\x07\x9b\x9d\u202e\u2066\r\b[]0;*mab\n\t …\ud800é:") | st.characters(), max_size=60
)


class Streams:
    """Both streams of the command line, caught."""

    def __init__(self, monkeypatch, *, is_terminal):
        self.out, self.err = io.StringIO(), io.StringIO()
        for name, stream in (("output", self.out), ("messages", self.err)):
            console = SafeConsole(
                file=stream, force_terminal=is_terminal, highlight=False, soft_wrap=True, emoji=False, width=100
            )
            for module in (terminal, output, progress_display):
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, console)

    @property
    def text(self):
        return self.out.getvalue() + self.err.getvalue()


def hit(content="a text", **fields):
    return SearchResult(content, rank=1, id="id", excerpt=fields.pop("excerpt", content), **fields)


@given(hostile)
def test_no_text_steers_a_terminal(text):
    with pytest.MonkeyPatch.context() as monkeypatch:
        streams = Streams(monkeypatch, is_terminal=False)
        problem = FileProblem(source_document=text, code="failed", message=text)
        results = SearchResults(
            [hit(text, source=text, source_document=text, heading_path=(text,), excerpt=text)],
            warnings=[text],
            embedding_model=text,
        )
        print_results(results, as_json=False)
        print_report(IndexReport(failed=1, problems=[problem]), as_json=False)
    assert not STEERING.search(streams.text)
    streams.text.encode()


@given(hostile)
def test_the_styles_of_ours_are_all_that_a_terminal_gets(text):
    with pytest.MonkeyPatch.context() as monkeypatch:
        streams = Streams(monkeypatch, is_terminal=True)
        print_results(SearchResults([hit(text, source_document=text)], warnings=[text]), as_json=False)
    assert not STEERING.search(re.sub(r"\x1b\[[\d;]*m", "", streams.text))


@given(hostile)
def test_json_is_escaped_and_reads_back(text):
    with pytest.MonkeyPatch.context() as monkeypatch:
        stream = io.StringIO()
        monkeypatch.setattr("sys.stdout", stream)
        print_json({"text": text})
    assert not STEERING.search(stream.getvalue().removesuffix("\n"))
    stream.getvalue().encode()
    # Halves that stand side by side are one character to JSON.
    assert json.loads(stream.getvalue())["text"] == json.loads(json.dumps(text))


@given(hostile)
def test_a_name_is_one_line_and_what_is_harmless_stays(text):
    assert "\n" not in one_line(text)
    assert printable(printable(text)) == printable(text)
    if text.isprintable():
        assert one_line(text) == text


# --- marks ----------------------------------------------------------------------------------------------------------
def marked(text):
    return [text.plain[span.start : span.end] for span in text.spans]


@given(
    words=st.lists(
        st.sampled_from(["blueprints", "*blueprints*", "**vault**", "a", "a ***", "x*y", "vault", "\n", "**Note:**"])
    )
)
def test_marks_are_told_from_the_texts_own_stars(words):
    content = " ".join(words).strip()
    [(excerpt, _)] = excerpts_of("blueprints vault", [content], [None], lambda _: _core.Analyzer("english"))
    text = marked_text(excerpt, content, "bold")
    assert text.plain.split() == content.split()
    # What Markdown marks already gets no marks of the search's.
    found = re.findall(r"(?<!\*\*)(?:blueprints|vault)|(?:blueprints|vault)(?!\*\*)", text.plain)
    assert marked(text) == found


def test_two_parts_and_a_text_that_is_not_the_contents():
    content = "the **first** vault. " + "And so on. " * 40 + "*blueprints* end"
    [(excerpt, _)] = excerpts_of("blueprints vault", [content], [None], lambda _: _core.Analyzer("english"))
    assert " … " in excerpt
    assert "".join(marked(marked_text(excerpt, content, "bold"))) == "vaultblueprints"
    assert marked_text("**other** text", content, "bold") == Text("**other** text")


def test_a_long_heading_takes_one_line_of_a_terminal(monkeypatch):
    long = hit("text", source_document="keys.md", place="line 9", heading_path=("Keys", "Client.post(path, " * 30))
    streams = Streams(monkeypatch, is_terminal=True)
    print_results(SearchResults([long]), as_json=False)
    first, *_ = re.sub(r"\x1b\[[\d;]*m", "", streams.out.getvalue()).splitlines()
    assert len(first) <= output.output.width
    assert first.startswith("1. keys.md:9  Keys > Client.post(path, ")
    assert first.endswith("…")


def test_a_pipe_gets_the_texts_own_lines_and_a_terminal_bold_words(monkeypatch):
    content = "def key():\n    if key:\n\n        return 1\n"
    for is_terminal in (False, True):
        streams = Streams(monkeypatch, is_terminal=is_terminal)
        print_results(SearchResults([hit(content, excerpt=content.replace("key", "**key**"))]), as_json=False)
        shown = re.sub(r"\x1b\[[\d;]*m", "", streams.out.getvalue())
        assert "   def key():\n   if key:\n       return 1\n" in shown
        assert ("\x1b[1mkey" in streams.out.getvalue()) == is_terminal


# --- places and figures ---------------------------------------------------------------------------------------------
def test_a_place_can_be_opened_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    below = hit(source="docs", root=str(tmp_path / "docs"), source_document="a/keys.md", place="line 9")
    assert location_of(below) == f"docs{os.sep}a{os.sep}keys.md:9"
    elsewhere = hit(source="docs", root="/srv/docs", source_document="keys.pdf", place="p. 7")
    assert location_of(elsewhere) == "/srv/docs/keys.pdf, p. 7"
    assert location_of(hit(source_document="given.md", place="line 7")) == "given.md:7"
    assert location_of(hit()) == "id"


def test_figures_have_no_negative_zero():
    assert [number(value, 3) for value in (-0.0, -0.00001, 0.0, -0.5)] == ["0.000", "0.000", "0.000", "-0.500"]


def test_is_it_in_there_at_all():
    results = SearchResults([])
    assert best_match(results) == ""
    results.best_similarity, results.coverage = 0.3141, 0.4
    assert (
        best_match(results)
        == "best similarity 0.31; the best hit contains 40 % of the query's words, counted by weight"
    )


def test_programs_are_told_as_well(capsys):
    results = SearchResults([])
    results.best_similarity, results.coverage = 0.3141, 0.4
    print_results(results, as_json=True)
    summary = json.loads(capsys.readouterr().out)
    assert (summary["best_similarity"], summary["coverage"]) == (0.3141, 0.4)


def test_a_stored_name_is_no_markup(monkeypatch):
    streams = Streams(monkeypatch, is_terminal=True)
    monkeypatch.setattr(output, "output", output.output)
    model = "[/red]x[link=file:///etc]y\n\x1b]z"
    made = datetime(2026, 1, 1, tzinfo=UTC)
    listed = CountedCollection(
        "a", "bm25", "english", model, 3, made, description="", documents=1, chunks=1, estimated=False
    )
    print_collections([listed], header=False)
    assert streams.out.getvalue().split() == ["a", "1", "1", "[/red]x[link=file:///etc]y\\n\\x1b]z", "english"]


# --- progress -------------------------------------------------------------------------------------------------------
def test_without_a_terminal_a_line_every_ten_seconds():
    lines = []
    now = 0.0
    show = ProgressLines(lines.append, clock=lambda: now)
    for second in range(31):
        now = float(second)
        show(Progress("embed", second * 100, 4000, "chunks"))
    assert lines == [
        "embed: 1,000 of 4,000 chunks, 100/s, about 30 s left",
        "embed: 2,000 of 4,000 chunks, 100/s, about 20 s left",
        "embed: 3,000 of 4,000 chunks, 100/s, about 10 s left",
    ]
    now = 100.0
    show(Progress("build indexes", 0, None, "rows"))
    assert lines[-1] == "build indexes: 0 rows"


def test_progress_is_shown_where_it_is_wanted(monkeypatch):
    streams = Streams(monkeypatch, is_terminal=True)
    with progress_bar(shown=True) as step:
        assert step is not None
        step(Progress("embed", 5, 10, "chunks"))
    assert "5/10" in streams.err.getvalue()
    assert streams.out.getvalue() == ""
    with progress_bar(shown=False) as step:
        assert step is None
