"""What reaches the terminal: places that can be opened, marks that are the search's, and nothing that steers."""

import inspect
import io
import json
import os
import re
import stat
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.text import Text

from semlex import _core
from semlex.cli import editor, output, terminal
from semlex.cli.commands.collections import print_collections
from semlex.cli.context import OUTPUT, SERVER, Context, with_context
from semlex.cli.options import AsJson
from semlex.cli.output import Columns, best_match, choosing, json_text, location_of, number, print_json, print_results
from semlex.cli.reports import print_report
from semlex.cli.terminal import SafeConsole, marked_text, one_line, printable, progress_bar
from semlex.diagnostics.status import CountedCollection
from semlex.errors import ConfigurationError
from semlex.ingest.files.discovery import FileProblem
from semlex.ingest.progress import IndexReport, Progress
from semlex.progress import ProgressLines
from semlex.server.mcp.access import OFFERS
from semlex.server.mcp.presentation import FOR_THE_PERSON, TOOLS, cleaned, in_tools, tool_result
from semlex.store.query.chunks import excerpts_of
from semlex.types.results import SearchResult, SearchResults

# All that a terminal may act upon: both sets of controls, and what turns the direction of writing.
STEERING = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
hostile = st.text(
    st.sampled_from("\x1b\x07\x9b\x9d\u202e\u2066\r\b[]0;*mab\n\t …\ud800é:") | st.characters(), max_size=60
)


unstyled = partial(re.sub, r"\x1b\[[\d;]*m", "")


def caught(monkeypatch, *, is_terminal):
    """Both streams of the command line."""
    streams = io.StringIO(), io.StringIO()
    for name, stream in zip(("output", "messages"), streams, strict=True):
        options = {"highlight": False, "soft_wrap": True, "emoji": False, "width": 100}
        console = SafeConsole(file=stream, force_terminal=is_terminal, **options)
        for module in (terminal, output):
            monkeypatch.setattr(module, name, console)
    return streams


def hit(content="a text", **fields):
    return SearchResult(content, rank=1, id="id", excerpt=fields.pop("excerpt", content), **fields)


@given(hostile)
def test_no_text_steers_a_terminal_or_json_and_a_name_is_one_line(text):
    found = hit(text, source=text, source_document=text, heading_path=(text,), excerpt=text)
    results = SearchResults([found], warnings=[text], embedding_model=text)
    with pytest.MonkeyPatch.context() as monkeypatch:
        streams = caught(monkeypatch, is_terminal=False)
        print_results(results, as_json=False)
        problem = FileProblem(source_document=text, code="failed", message=text)
        print_report(IndexReport(failed=1, problems=[problem]))
        of_terminal = caught(monkeypatch, is_terminal=True)
        print_results(results, as_json=False)
        stream = io.StringIO()
        monkeypatch.setattr("sys.stdout", stream)
        print_json({"text": text})
    for told in streams:
        assert not STEERING.search(told.getvalue())
        told.getvalue().encode()
    # The styles of ours are all that a terminal gets.
    assert not any(STEERING.search(unstyled(told.getvalue())) for told in of_terminal)
    assert not STEERING.search(stream.getvalue().removesuffix("\n"))
    stream.getvalue().encode()
    # Halves that stand side by side are one character to JSON.
    assert json.loads(stream.getvalue())["text"] == json.loads(json.dumps(text))
    assert json_text({"a": "\x1b[2J\u202e"}) == '{"a": "\\u001b[2J\\u202e"}'
    assert "\n" not in one_line(text)
    assert printable(printable(text)) == printable(text)
    if text.isprintable():
        assert one_line(text) == text


def marked(text):
    return [text.plain[span.start : span.end] for span in text.spans]


def excerpt_of(content):
    [(excerpt, _)] = excerpts_of("blueprints vault", [content], [None], lambda _: _core.Analyzer("english"))
    return excerpt


STARS = st.sampled_from(["blueprints", "*blueprints*", "**vault**", "a", "a ***", "x*y", "vault", "\n", "**Note:**"])


@given(words=st.lists(STARS))
def test_marks_are_told_from_the_texts_own_stars(words):
    content = " ".join(words).strip()
    text = marked_text(excerpt_of(content), content, "bold")
    assert text.plain.split() == content.split()
    # What Markdown marks already gets no marks of the search's.
    found = re.findall(r"(?<!\*\*)(?:blueprints|vault)|(?:blueprints|vault)(?!\*\*)", text.plain)
    assert marked(text) == found


def test_two_parts_are_marked_and_a_heading_takes_one_line(monkeypatch):
    content = "the **first** vault. " + "And so on. " * 40 + "*blueprints* end"
    excerpt = excerpt_of(content)
    assert " … " in excerpt
    assert "".join(marked(marked_text(excerpt, content, "bold"))) == "vaultblueprints"
    assert marked_text("**other** text", content, "bold") == Text("**other** text")
    long = hit("text", source_document="keys.md", place="line 9", heading_path=("Keys", "Client.post(path, " * 30))
    out, _ = caught(monkeypatch, is_terminal=True)
    print_results(SearchResults([long]), as_json=False)
    first, *_ = unstyled(out.getvalue()).splitlines()
    assert len(first) <= output.output.width
    assert first.startswith("1. keys.md:9  Keys > Client.post(path, ")
    assert first.endswith("…")
    content = "def key():\n    if key:\n\n        return 1\n"
    for is_terminal in (False, True):
        out, _ = caught(monkeypatch, is_terminal=is_terminal)
        print_results(SearchResults([hit(content, excerpt=content.replace("key", "**key**"))]), as_json=False)
        assert "   def key():\n   if key:\n       return 1\n" in unstyled(out.getvalue())
        assert ("\x1b[1mkey" in out.getvalue()) == is_terminal
    out, _ = caught(monkeypatch, is_terminal=True)
    model = "[/red]x[link=file:///etc]y\n\x1b]z"
    counts = {"description": "", "documents": 1, "chunks": 1, "estimated": False}
    listed = CountedCollection("a", "bm25", "english", model, 3, datetime(2026, 1, 1, tzinfo=UTC), **counts)
    print_collections([listed], header=False)
    assert out.getvalue().split() == ["a", "1", "1", "[/red]x[link=file:///etc]y\\n\\x1b]z", "english"]


def test_a_place_can_be_opened_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    below = hit(source="docs", root=str(tmp_path / "docs"), source_document="a/keys.md", place="line 9")
    assert location_of(below) == f"docs{os.sep}a{os.sep}keys.md:9"
    elsewhere = hit(source="docs", root="/srv/docs", source_document="keys.pdf", place="p. 7")
    assert location_of(elsewhere) == "/srv/docs/keys.pdf, p. 7"
    assert location_of(hit(source_document="given.md", place="line 7")) == "given.md:7"
    assert location_of(hit()) == "id"


def test_progress_is_shown_where_it_is_wanted(monkeypatch):
    out, err = caught(monkeypatch, is_terminal=True)
    with progress_bar(shown=True) as step:
        assert step is not None
        step(Progress("embed", 5, 10, "chunks"))
    assert "5/10" in err.getvalue()
    assert out.getvalue() == ""
    with progress_bar(shown=False) as step:
        assert step is None
    # Without a terminal a line every ten seconds.
    lines, now = [], 0.0
    show = ProgressLines(lines.append, clock=lambda: now)
    for second in range(31):
        now = float(second)
        show(Progress("embed", second * 100, 4000, "chunks"))
    assert lines == [f"embed: {n},000 of 4,000 chunks, 100/s, about {40 - 10 * n} s left" for n in (1, 2, 3)]
    now = 100.0
    show(Progress("build indexes", 0, None, "rows"))
    assert lines[-1] == "build indexes: 0 rows"


NAME = st.sampled_from(["a", "b", "c"])
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('x\t\n"\x1b'), max_size=4),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAME, inside, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(NAME, VALUE, min_size=1, max_size=3)
NAMES = st.lists(NAME, min_size=1, max_size=3, unique=True)


def printed(columns, *values):
    return [*(line for value in values for line in columns.lines(value)), *columns.end()]


@pytest.mark.slow
@given(values=st.lists(OBJECT, max_size=5), names=NAMES, header=st.booleans())
def test_lines_have_the_keys_of_the_objects_that_have_them(values, names, header):
    as_json, as_text = (Columns(tuple(names), as_json=is_json, header=header) for is_json in (True, False))
    having = [value for value in values if value.keys() >= set(names)]
    if values and not having:
        with pytest.raises(ConfigurationError, match="--fields"):
            printed(as_json, *values)
        return
    objects = [json.loads(line) for line in printed(as_json, *values)]
    assert objects == [{name: value[name] for name in names} for value in having]
    lines = printed(as_text, *values)
    assert len(lines) == len(having) + header
    assert all(line.count("\t") == len(names) - 1 and line.isprintable() == ("\t" not in line) for line in lines)


def test_chosen_fields_json_output_and_figures(capsys):
    value = {"metadata": {"year": 2020, "a.b": 1}, "path": ["x", "y"], "hits": [{"id": 1}, {"id": 2}, {}]}
    columns = Columns(("metadata.year", "metadata.a.b", "path.1", "path.7", "hits.id"), as_json=False, header=False)
    assert printed(columns, value) == ["2020\t1\ty\t\t[1, 2]"]
    with choosing(" id, line ,,id", as_json=False, header=True) as columns:
        assert columns.names == ("id", "line")
    with pytest.raises(ConfigurationError, match="commas"), choosing(" ,", as_json=False, header=True):
        pass
    columns = Columns(("id", "metadata.yaer"), as_json=False, header=True)
    assert printed(columns, {"id": "x", "metadata": {"year": 1}}) == ["id\tmetadata.yaer", "x\t"]
    assert "'metadata.yaer': did you mean metadata.year" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="'idd': did you mean id"):
        printed(Columns(("idd",), as_json=False, header=True), {"id": 1})
    with pytest.raises(ConfigurationError, match="no line of --json has all of"):
        printed(Columns(("a", "b"), as_json=False, header=True), {"a": 1}, {"b": 1})
    columns = Columns(("id",), as_json=True, header=True)  # warnings of lines that are left out are told
    assert printed(columns, {"id": 1}, {"type": "summary", "warnings": ["words alone\nanswered"]}) == ['{"id": 1}']
    assert "note: words alone\\nanswered" in capsys.readouterr().err
    for as_json, header, lines in ((False, True, ["id\tline"]), (False, False, []), (True, True, [])):
        assert printed(Columns(("id", "line"), as_json=as_json, header=header)) == lines
    shown = []
    Context().emit({"a": 1}, lambda: shown.append("text"))
    assert (shown.pop(), capsys.readouterr().out) == ("text", "")
    Context(as_json=True).emit([{"a": 1}, {"a": 2}], lambda: shown.append("text"))
    assert (shown, capsys.readouterr().out) == ([], '{"a": 1}\n{"a": 2}\n')
    Context(as_json=True).emit(Context(collection="c"), lambda: shown.append("text"))
    assert capsys.readouterr().out.startswith('{"collection": "c", "database_url": null, ')
    results = SearchResults([])
    assert best_match(results) == ""
    results.best_similarity, results.coverage = 0.3141, 0.4
    told = "best similarity 0.31; a hit contains up to 40 % of the query's words, weighted by rarity"
    assert best_match(results) == told
    print_results(results, as_json=True)  # programs are told as well
    summary = json.loads(capsys.readouterr().out)
    assert (summary["best_similarity"], summary["coverage"]) == (0.3141, 0.4)
    # Figures have no negative zero.
    assert [number(value, 3) for value in (-0.0, -0.00001, 0.0, -0.5)] == ["0.000", "0.000", "0.000", "-0.500"]


def test_commands_take_shared_options():
    def command(context, words, *, exact=False):
        """Does nothing."""

    first, before = (with_context("collection", *between)(command) for between in (SERVER, (..., *SERVER)))
    assert [*inspect.signature(first).parameters] == ["words", "exact", "collection", *SERVER, *OUTPUT]
    assert [*inspect.signature(before).parameters] == ["collection", "words", "exact", *SERVER, *OUTPUT]
    assert (first.__name__, first.__doc__) == ("command", "Does nothing.")
    shared = inspect.signature(first).parameters["as_json"]
    assert (get_args(shared.annotation), shared.default) == (get_args(AsJson), False)
    seen = []
    for names, model in ((("collection",), "none"), (SERVER, None)):
        command = with_context(*names)(lambda context: seen.append(context))  # noqa: PLW0108 - of its own name
        command(**dict.fromkeys(names), as_json=True, shown_fields=None, header=True)
        assert (seen[-1].embedding_model, seen[-1].as_json) == (model, True)
    with pytest.raises(KeyError, match="colection"):  # when the command is made
        with_context("colection")(lambda context: None)


def test_editors_and_paths(monkeypatch, tmp_path):
    monkeypatch.delenv("VISUAL", raising=False)
    for named, expected in [
        ("vim", ["vim", "+7", "/d/a b.md"]),
        ("/usr/bin/nano -l", ["/usr/bin/nano", "-l", "+7", "/d/a b.md"]),
        ("emacsclient -n", ["emacsclient", "-n", "+7", "/d/a b.md"]),
        ("code --wait", ["code", "--wait", "-g", "/d/a b.md:7"]),
        ("less", ["less", "/d/a b.md"]),
        ("'/opt/my editor/run'", ["/opt/my editor/run", "/d/a b.md"]),
    ]:  # fmt: skip
        monkeypatch.setenv("EDITOR", named)
        assert editor.editor_command(editor._editor(), Path("/d/a b.md"), 7) == expected
        assert editor.editor_command(["vim"], Path("/d/a"), None) == ["vim", "/d/a"]
    file = tmp_path / "$(touch made); a.md"
    file.write_text("one\ntwo\n")
    seen = tmp_path / "seen"
    program = tmp_path / "editor.py"
    program.write_text(f"#!{sys.executable}\nimport sys\nopen({str(seen)!r}, 'w').write('|'.join(sys.argv[1:]))\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDITOR", str(program))
    editor.open_hit([SearchResult("two", id="a", root=str(tmp_path), source_document=file.name, line=2)], 1)
    assert seen.read_text() == str(file)
    assert not (tmp_path / "made").exists()
    monkeypatch.setenv("EDITOR", "no-such-editor")
    (tmp_path / "a.md").touch()
    there, gone = (SearchResult("x", id="x", root=str(tmp_path), source_document=name) for name in ("a.md", "b.md"))
    for hits, place, said in (
        ([], 1, "nothing was found"),
        ([there], 2, "no hit 2 to open: there are hits 1 to 1"),
        ([SearchResult("x", id="added")], 1, "semlex documents show added"),
        ([gone], 1, r"the file .*b\.md is gone: semlex documents show x"),
        ([there], 1, "no-such-editor cannot be run"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            editor.open_hit(hits, place)
    for named, said in (
        ("", "export EDITOR=vim"),
        ("'vim", "close the quote"),
        ("false", "ended with exit code 1"),
    ):
        monkeypatch.setenv("EDITOR", named)
        with pytest.raises(ConfigurationError, match=said):
            editor.open_hit([there], 1)
    for variable, value in (("EDITOR", "'vim"), ("VISUAL", "'code --wait")):
        monkeypatch.setenv(variable, value)
        with pytest.raises(ConfigurationError, match=f"^{variable} cannot be read as a command"):
            editor.open_hit([there], 1)


@given(name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=20))
def test_a_path_is_one_argument_whatever_is_in_it(name):
    path = Path("/folder") / name
    for program in ("vim", "less", "code"):
        *_, last = editor.editor_command([program], path, 3)
        assert last.removesuffix(":3") == str(path)
        assert last.startswith("/")


def test_a_pdf_is_opened_at_its_page_or_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    path = Path("/d/a.pdf")
    refused = r"cannot show /d/a.pdf: open it in its own program at p. 36; programs"
    with pytest.raises(ConfigurationError, match=refused):
        editor.viewer_command(path, "p. 36", 36)
    (tmp_path / "okular").write_text("#!/bin/sh\n")
    (tmp_path / "okular").chmod(0o755)
    assert editor.viewer_command(path, "p. 36", 36) == [str(tmp_path / "okular"), "--page", "36", "/d/a.pdf"]
    with pytest.raises(ConfigurationError, match=r"own program at sheet Prices, row 4$"):
        editor.viewer_command(Path("/d/a.xlsx"), "sheet Prices, row 4", None)


ALL = {offer.name for offer in OFFERS}
READING = {offer.name for offer in OFFERS if offer.reads_only}


def test_commands_are_tools_where_there_are_some():
    for message, told in [
        ("damaged; rebuild it with: semlex maintain reindex", "damaged; rebuild it with: the tool reindex_collection"),
        ("semlex index FOLDER makes one", "the tool index_folder makes one"),
        ("read: semlex index '/a b/c.md' --collection x (a file)", "read: the tool index_folder (a file)"),
        ("semlex maintain reindex --collection x, then go on", "the tool reindex_collection, then go on"),
        ("semlex maintain optimize merges them", "the tool optimize_search merges them"),
        ("semlex fields add year number", f"semlex fields add year number{FOR_THE_PERSON}"),
        ("semlex models fill --collection x", f"semlex models fill --collection x{FOR_THE_PERSON}"),
        ("nothing to do", "nothing to do"),
        ("semlexx index", "semlexx index"),
    ]:  # fmt: skip
        assert in_tools(message, ALL) == told
    message = "damaged; rebuild it with: semlex maintain reindex"
    assert in_tools(message, READING) == message + FOR_THE_PERSON
    assert set(TOOLS.values()) <= ALL


texts = st.text(max_size=30) | st.text(st.characters(max_codepoint=127), max_size=30)


@given(text=texts, metadata=st.dictionaries(texts, texts | st.lists(texts, max_size=2), max_size=3))
@example(text="a\rb", metadata={})
@example(text="a\x1bb", metadata={})
@example(text="a\\rb", metadata={"\x0c": "\x08"})
@example(text="é\u200bü", metadata={})
def test_the_structure_is_cleaned(text, metadata):
    """The slow twin cleans every result."""
    value = {"collection": "a", "chunk": {"content": text, "metadata": metadata, "page": None}, "start": 0}
    assert tool_result(value, text).structured_content == cleaned(value)
