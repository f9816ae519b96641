"""What notebooks, terminals and the interactive interpreter show: all text escaped, bounded, and a line a hit."""

import io
import sys
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import semlex
from semlex.errors import ConfigurationError
from semlex.ingest.progress import Progress
from semlex.progress import UPDATE_SECONDS, NotebookProgress, check_progress, shown
from semlex.types.checkups import AskedHeading, Checkup, DocumentCheckup, LeftOut, Share
from semlex.types.display import MAX_ROWS, UNSAFE, marked, marked_parts, shortened

HOSTILE = (
    "<script>alert(1)</script>", "<img src=x onerror=y>", "</td></table>", "<!--", "-->", "<![CDATA[", "&lt;", "&#60;",
    "' onclick='x", '" style="x', "<", ">", "&", "**", "***", " … ", "\n", "\x1b[2J", "\u202e", "\0", "$x$", "\\(",
)  # fmt: skip
texts = st.one_of(st.lists(st.sampled_from(HOSTILE), max_size=6).map("".join), st.text(max_size=300))
OURS = {
    *((tag, ()) for tag in ("table", "thead", "tbody", "tr", "mark", "b", "br", "p")),
    ("th", (("style", "text-align: left"),)),
    *((tag, (("style", "text-align: left; white-space: pre-wrap"),)) for tag in ("td", "p", "pre")),
}


class Elements(HTMLParser):
    """The elements of a page, which must be ours and closed in their order, and its text."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.text = [], ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert (tag, tuple(attrs)) in OURS
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        pytest.fail(f"a comment: {data}")

    handle_decl = handle_pi = unknown_decl = handle_comment


def sample(words):
    """One of each kind of value that is shown, full of the words."""
    a, b, c, d = words
    first = {"source_document": c, "place": d, "vector_score": 0.25, "excerpt": d, "heading_path": (a, d)}
    hits = [
        semlex.SearchResult(a, id=b, rank=1, **first),
        semlex.SearchResult(d, id=a, rank=2, fused_score=-0.0001, excerpt=f"x **{a}** … {b}"),
    ]
    found = semlex.SearchResults(hits, warnings=[c], fusion="score")
    known = semlex.KnowledgeHit(a, id=b, rank=1, collection=c, collection_rank=1, merge_score=0.5, excerpt=d)
    sources = (semlex.ContextSource(1, a, b, c, (d,)), semlex.ContextSource(2, d, "", b, (a,), place=d))
    context = semlex.Context(a, sources, 12, (found[0],), found, (b,))
    cited = (semlex.Citation(1, a, b, "exact", place=c), semlex.Citation(2, d, c, "not found"))
    missed = AskedHeading(a, (b,), c, None, "below_top_k", (d,))
    values = [semlex.FacetValue(b, 1), semlex.FacetValue([c], 2)]
    share = Share(1, 2, 0.5, (0.1, 0.9))
    return [
        found,
        found[0],
        semlex.DocumentHits(1, a, b, c, hits),
        semlex.KnowledgeResults([known], skipped={a: b}, searched={c: found}),
        known,
        context,
        sources[0],
        semlex.Answer(a, (semlex.AnswerSentence(b, cited),), context, 0.5, warnings=(d,)),
        semlex.Answer(a, (), context, refused=d),
        semlex.Facets({a: semlex.Facet(a, values, 3)}, warnings=[d], exact=False),
        semlex.Explanation(a, b, (semlex.Reason("not_stored", c, d),), notes=(a,)),
        Checkup(
            "words", "hybrid", b, 5, 2, 9, LeftOut(), share, share, {1: 0.5}, {},
            (DocumentCheckup(a, b, 3, (missed,)),),
            (), None, 0, 0.1, 7, (c,),
        ),
    ]  # fmt: skip


@given(st.lists(texts, min_size=4, max_size=4))
def test_documents_bring_no_elements_into_a_notebook_and_steer_nothing(words):
    for value in sample(words):
        if hasattr(value, "_repr_html_"):
            page = value._repr_html_()
            assert UNSAFE.search(page) is None
            Elements(page)
    long = [word * 200 for word in words]
    own = [semlex.Document(long[0], id=words[1]), semlex.StoredChunk(long[0], id=long[1])]
    for value in [*sample(long), *sample(words), *own]:
        shown = repr(value)
        if isinstance(value, semlex.Explanation):  # a value of names and figures: all of it is told
            continue
        assert len(shown) < 2_000
        assert UNSAFE.search(shown) is None
        assert len(shown.split("\n")) <= 12


def test_searches_are_tables_and_lines_of_hits():
    hit = semlex.SearchResult(
        "Rotate a key.", id="a", rank=1, source_document="keys.md", place="line 9",
        heading_path=("Keys",), vector_score=-0.00001, fused_score=0.91234, excerpt="Rotate a **key**.",
    )  # fmt: skip
    found = semlex.SearchResults([hit], warnings=["late"])
    page = Elements(found._repr_html_())
    assert page.text == "perhaps in hereplacevectorfusedexcerpt1keys.md:9Keys0.0000.912Rotate a key.note: late"
    assert "<mark>key</mark>" in found._repr_html_()
    assert Elements(semlex.SearchResults(warnings=["late"])._repr_html_()).text == "nothing foundnote: late"
    many = semlex.SearchResults([semlex.SearchResult("text", id=str(number)) for number in range(MAX_ROWS + 5)])
    assert Elements(many._repr_html_()).text.endswith("… and 5 more")
    hits = [
        semlex.SearchResult(
            "Rotate a key every\nninety days.", id=str(number), rank=number, fused_score=1 / number, vector_score=0.5,
            source_document="keys.md", place=f"line {number}", excerpt="Rotate a **key** every\nninety days.",
        )
        for number in range(1, 13)
    ]  # fmt: skip
    shown = repr(semlex.SearchResults(hits, fusion="score", support="likely")).split("\n")
    assert shown[0] == "SearchResults, hybrid, fused by score, probably in here: 12 hits"
    assert shown[1] == "  1. keys.md:1  fused 1.000  Rotate a key every ninety days."
    assert (shown[-1], len(shown)) == ("  … and 2 more", 12)
    assert repr(semlex.SearchResults()) == "SearchResults, hybrid: 0 hits"
    assert repr(semlex.SearchResults(hits[:1])).startswith("SearchResults, hybrid, perhaps in here: 1 hit\n")
    chunk = semlex.ChunkMetadata("a", "keys.md", "word " * 1_000, 1_000)
    assert repr(chunk).startswith("ChunkMetadata(chunk_id='a', source_document='keys.md', 'word word")
    assert len(repr(chunk)) < 200
    context = semlex.Context("", (), 0, (), semlex.SearchResults())
    answer = semlex.Answer("?", (), context)
    for value in (semlex.SearchResults(), semlex.KnowledgeResults(), context, answer, semlex.Facets()):
        assert repr(value)
        assert value._repr_html_()


@given(texts, st.integers(1, 100))
def test_a_shortened_text_is_one_line(text, most):
    short = shortened(text, most)
    assert len(short) <= most
    assert UNSAFE.search(short) is None
    assert "\n" not in short


@given(texts, st.lists(st.tuples(st.integers(0, 300), st.integers(1, 9)), max_size=3))
def test_marks_are_those_of_the_excerpt(content, places):
    """Words of a text without stars of its own, put between marks, come back as they were marked."""
    plain = content.replace("*", "").replace(" … ", "")
    cuts = sorted({min(begin, len(plain)) for begin, _ in places} | {min(sum(one), len(plain)) for one in places})
    cuts = cuts[: len(cuts) // 2 * 2]
    edges = [0, *cuts, len(plain)]
    wanted = [(plain[a:b], n % 2 == 1) for n, (a, b) in enumerate(pairwise(edges)) if a < b]
    excerpt = "".join(f"**{piece}**" if is_marked else piece for piece, is_marked in wanted)
    assert "".join(piece for piece, _ in marked_parts(excerpt, plain)) == plain
    assert [one for one in marked_parts(excerpt, plain) if one[1]] == [one for one in wanted if one[1]]
    assert Elements(f"<p>{marked(excerpt, plain)}</p>").open == []


# --- bars of progress -------------------------------------------------------------------------------------------------

counts = st.integers(0, 10**9)
steps = st.builds(Progress, st.text(max_size=20), counts, st.none() | counts, st.just("rows"))


def test_bars_are_drawn_on_a_terminal_and_nothing_where_nobody_looks(capsys, monkeypatch):
    for progress in ("bar", None):
        with shown(progress) as tell:
            assert tell is None
    told = []
    with shown(told.append) as tell:
        assert tell == told.append
    assert capsys.readouterr() == ("", "")
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with shown("bar") as tell:
        assert tell is not None
        for stage, done, total in (("read", 1, 2), ("write [bold]\x1b", 5, None), ("read", 2, 2)):
            tell(Progress(stage, done, total, "files" if total else "rows"))
    drawn = terminal.getvalue()
    assert "write [bold]\\x1b (rows)" in drawn
    assert "2/2" in drawn
    assert drawn.endswith("\x1b[2K")
    for wrong in [True, 1, "bars", "", b"bar", ["bar"]]:
        for refusing in (shown, check_progress):
            with pytest.raises(ConfigurationError, match="progress must be function or 'bar'"):
                refusing(wrong)


@given(st.lists(st.tuples(st.floats(0, 1), steps), max_size=30))
def test_a_notebook_is_told_the_last_of_every_stage_and_seldom(events):
    now, due, last, pages, lines = 0.0, 1, {}, [], []
    progress = NotebookProgress(lambda page, line: pages.append(page) or lines.append(line), lambda: now)
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
    assert Progresses(pages[-1]).figures == [
        f"{one.done:,} rows" if one.total is None else f"{one.done:,} of {one.total:,} rows" for one in last.values()
    ]


class Progresses(Elements):
    """A page of progress: the third cell of each row."""

    def __init__(self, page):
        self.figures, self.cells = [], 0
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
