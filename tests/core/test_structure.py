"""The structure of documents: what is above a chunk and is not cut, and web pages as Markdown."""

import ast
import sysconfig
from html.entities import html5
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from tests.support.markdown_texts import SENTENCE
from tests.support.plain_html import plain_markdown

LIBRARY = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))


def cut(text, structure, *, most=10_000, least=0, overlap=0):
    limits = {"max_tokens": most, "overlap_tokens": overlap, "min_tokens": least, "max_bytes": 1_000_000}
    found = _core.split_text(text, _core.word_offsets(text), structure=structure, **limits)
    texts = [text[start:end] for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True)]
    return [*zip(texts, found.headings, found.code.tolist(), found.introductions, strict=True)]


def paths(text, structure):
    return [headings for _, headings, _, _ in cut(text, structure)]


# --- reStructuredText -----------------------------------------------------------------------------------------------

TITLE = st.sampled_from(["One", "Two words", "Étude", "f(x)", "What is it?"])


@st.composite
def sections(draw, level=0):
    """A text with underlined headings, and the path above each of its sections."""
    marks = draw(st.permutations("=-~^\"'")) if level == 0 else None
    lines, found = [], []

    def add(level, above):
        for _ in range(draw(st.integers(0 if level else 1, 2))):
            title = draw(TITLE)
            mark = marks[level]
            # The mark is above as well at the first level alone: another style is another depth.
            lines.extend([mark * (len(title) + 1)] if level == 0 else [])
            lines.extend([title, mark * (len(title) + 1), "", draw(SENTENCE.filter(str.strip)), ""])
            path = (*above, title)
            found.append(path)
            if level < 3:
                add(level + 1, path)

    add(0, ())
    return "\n".join(lines), found


@given(sections())
def test_underlines_make_sections(drawn):
    text, expected = drawn
    assert paths(text, "restructuredtext") == expected


# --- what belongs together ------------------------------------------------------------------------------------------

BODIES = {
    "markdown": ["```py\nx = 1\ny = 2\n```", "- one\n- two", "| a | b |\n|---|---|\n| c | d |", "1. one\n2. two"],
    "restructuredtext": [
        ".. code-block:: py\n\n   x = 1\n   y = 2", "- one\n- two", "    x = 1\n    y = 2", "#. a\n#. b",
    ],
}  # fmt: skip


@given(st.data(), st.sampled_from(sorted(BODIES)), st.integers(30, 60))
def test_an_introduction_is_not_cut_from_what_it_introduces(data, structure, most):
    bodies = st.sampled_from(BODIES[structure])
    lead_in = "And so it goes::" if structure == "restructuredtext" else "And so it goes:"
    blocks = data.draw(st.lists(SENTENCE.filter(str.strip) | bodies.map(f"{lead_in}\n\n{{}}".format), max_size=12))
    text = "\n\n".join(blocks)
    for content, _, _, _ in cut(text, structure, most=most)[:-1]:
        assert not content.endswith(lead_in)


@given(st.integers(1, 40), st.integers(8, 30), st.integers(12, 40))
def test_a_list_that_is_cut_says_what_it_lists_and_a_table_repeats_its_header(items, most, most_of_table):
    text = "These are taken:\n\n" + "\n".join(f"- item number {number}" for number in range(items)) + "\n\nBehind it."
    first, *rest = cut(text, "markdown", most=most)
    assert first[3] is None
    for content, _, _, introduction in rest:
        assert introduction == (None if content.startswith("Behind") else "These are taken:")
    header = "| name | default |\n|------|---------|"
    rows = "\n".join(f"| option {row} | {row} |" for row in range(items))
    for content, _, _, introduction in cut(
        f"Options\n\n{header}\n{rows}\n\nBehind it.", "markdown", most=most_of_table
    ):
        assert "|" not in content or header in content or introduction == header
        assert not content.endswith("---|")
        assert all(line.count("|") in (0, 3) for line in content.splitlines())


# --- source code ----------------------------------------------------------------------------------------------------
def definitions(nodes, above=()):
    """The definitions of a module in order; inside a function there are none."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            path = (*above, f"class {node.name}")
            yield path
            yield from definitions(node.body, path)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield (*above, f"def {node.name}")
        else:
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from definitions(getattr(node, part, []), above)


def innermost(found):
    """Without those that go on with the next one: a first line alone is one chunk with what follows it."""
    behind = [*found[1:], ()]
    return [path for path, next_one in zip(found, behind, strict=False) if path != next_one[: len(path)]]


@pytest.mark.slow
@given(st.sampled_from(LIBRARY))
def test_definitions_are_those_of_the_grammar(file):
    text = file.read_text(encoding="utf-8")
    expected = [path for path in definitions(ast.parse(text).body) if len(path) <= 6]
    found = [()]
    for path in paths(text, "code:py"):
        # What goes on behind a definition has the path of what it lies in.
        if path != found[-1][: len(path)]:
            found.append(path)
    assert innermost(found[1:]) == innermost(expected)


OTHER_LANGUAGES = [
    ("rs", [(), ("struct Point",), ("impl Shape for Point", "fn area"), ()],
     "//! Doc\nuse x;\n\n/// A point.\n#[derive(Debug)]\npub struct Point {\n    x: i32,\n}\n\n",
     "impl Shape for Point {\n    /// Area.\n    pub(crate) fn area(&self) -> f64 {\n        fn inner() {}\n",
     "        0.0\n    }\n}\n\nconst A: u8 = 1;\n"),
    ("ts", [(), ("class Store", "get()"), ("function f",), ()],
     "import x from 'x';\n\nexport default class Store {\n  get(k: string): string {\n    return '';\n  }\n}\n\n",
     "export async function f(a) {\n  if (a) {\n    go();\n  }\n}\n\nit('is', () => {\n  run();\n});\n"),
    ("java", [(), ("class S",), ("class S", "get()")],
     "package a;\n\npublic class S {\n    int n = f();\n\n    @Override\n    public A get(K k)\n    {\n    }\n}\n"),
    ("go", [(), ("func Get",)], "package a\n\nfunc (s *Store) Get(k string) string {\n\treturn k\n}\n"),
    ("rb", [("module A", "class B", "def go!")],
     "module A\n  class B < C\n    def go!\n      1\n    end\n  end\nend\n"),
    ("sql", [("table users",), ("index i",)],
     "-- users\nCREATE TABLE IF NOT EXISTS users (\n  id int\n);\n\ncreate unique index i\n  on users (id);\n"),
    ("toml", [(), ("tool.x",), ("list",)], "a = 1\n\n[tool.x]\nb = 2\n\n[[list]]\nc = 3\n"),
    ("json", [()], '{"class": "x",\n "def f": 1}\n'),
]  # fmt: skip


def test_definitions_headings_code_and_tables():
    for suffix, expected, *parts in OTHER_LANGUAGES:
        chunks = cut("".join(parts), f"code:{suffix}")
        assert [path for _, path, _, _ in chunks] == expected
        assert all(code for _, _, code, _ in chunks)
    text = "import x\n\n# About f.\n@cached\ndef f():\n    '''Says\n\ndef no():\n    '''\n\ndef g():\n    1\n"
    assert [content.splitlines()[0] for content, *_ in cut(text, "code:py")] == ["import x", "# About f.", "def g():"]
    with pytest.raises(ValueError, match="structure: must be 'plain'"):
        cut("text", "latex")
    text = "- item\n\n    ```py\n    # no heading\n    ```\n\n- next\n\n# Heading\n\ntext"
    assert paths(text, "markdown") == [(), ("Heading",)]
    assert [code for _, _, code, _ in cut(text, "markdown", most=3)].count(True) == 1
    text = "# 1.1\n\n## Fixed\n\nshort\n\n# 1.0\n\n## Added\n\n" + "word " * 30
    first, second, *_ = (content for content, *_ in cut(text, "markdown", most=40, least=10))
    assert first.startswith("# 1.1")
    assert second.startswith("# 1.0\n\n## Added")
    text = "Top\n~~~\n\na\n\nSub\n===\n\nb\n\n.. _next:\n\nNext\n~~~~\n\nc\n\n-----\n\nShort underline\n---\n\nd"
    chunks = cut(text, "restructuredtext")
    assert [path for _, path, _, _ in chunks] == [("Top",), ("Top", "Sub"), ("Next",)]
    assert chunks[2][0].startswith(".. _next:")  # a label belongs to what it names
    text = "A line: and more\nnext line\n\n    indented\n\n* star ** x *\n== not a border\n.. \n..x\n"
    assert paths(text, "restructuredtext") == [()]
    text = (
        "Reference\n=========\n\n.. py:class:: Client(url)\n\n   Speaks to a server.\n\n   .. py:method:: close()\n\n"
        "      Ends it.\n\n   More of the class.\n\nBehind it.\n\n.. confval:: timeout\n\n   In seconds.\n"
    )
    below = [("Client(url)",), ("Client(url)", "close()"), ("Client(url)",), (), ("timeout",)]
    assert paths(text, "restructuredtext") == [("Reference", *path) for path in below]
    for text in [
        "Like this::\n\n    x = 1\n\n    y = 2\n\nBehind.",
        ".. code-block:: python\n   :caption: c\n\n   x = 1\n\n   y = 2\n\nBehind.",
        ">>> x = 1\n>>> x\n1\n\nBehind.",
    ]:  # fmt: skip
        chunks = cut(text, "restructuredtext", most=3)
        assert any(code for _, _, code, _ in chunks)
        assert not chunks[-1][2]
    header = "====  =====\nName  Value\n====  ====="
    text = f"{header}\n" + "\n".join(f"n{row:<3}  v{row}" for row in range(40)) + "\n====  =====\n\nBehind it."
    first, *rest = cut(text, "restructuredtext", most=20)
    assert first[0].startswith(header)
    assert {introduction for content, _, _, introduction in rest if content.startswith("n")} == {header}


# --- web pages, as a slow twin reads them -----------------------------------------------------------------------------

hour_limit = pytest.mark.timeout(3600)  # with --full
READER = _core.HtmlReader(html5)
ENTITIES = sorted(html5)
PAGES = sorted((Path(__file__).parents[1] / "data").rglob("*.html"))

# fmt: off
# All names that mean something, some that mean nothing, and letters whose other case is a letter of ASCII.
NAMES = [
    "a", "address", "article", "aside", "b", "blockquote", "body", "br", "caption", "center", "dd", "details", "dialog",
    "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "h0",
    "h7", "h11", "header", "hr", "html", "img", "legend", "li", "main", "nav", "noscript", "ol", "option", "p", "pre",
    "script", "section", "select", "style", "summary", "svg", "table", "tbody", "td", "template", "textarea", "tfoot",
    "th", "thead", "title", "tr", "ul", "x-y", "a=b", "<p", "é", "\u017fcript", "t\u0131tle", "bloc\u212aquote",
]
# Those with a rule of their own.
FREQUENT = ["p", "li", "h1", "h2", "pre", "title", "td", "tr", "div", "a", "nav", "script", "svg", "textarea"]
WORDS = [
    "navigation", "search", "banner", "contentinfo", "menu", "Sidebar", "sphinxsidebar", "sidemenu", "breadcrumb",
    "breadcrumbs", "toc", "headerlink", "headeranchor", "header\u212aink", "MENU\xa0x", "text", "\u0130",
]
BLANKS = [
    " ", " ", "  ", "\n", "\r\n", "\t", "\f", "\v", "\x1c", "\x1f", "\x85", "\xa0", "\u2028", "\u3000", "\u200b",
]
MARKS = ["#", "#", "######", "#######", "=", "===", "-", "--", "`", "``", "```", "````", "~~~", "~~", "|", "\\"]
SHARDS = ["<", "</", ">", "/", '"', "'", "<!>", "<?x>", "<!-->", "<!--a-->", "-->", "<a <p>", "<p/x>", "</>", "</é>"]
UNCLOSED = ["<!--", "<!", "<?", "<a b='", '<div class="', "<p", "</p", "<title>", "<script>"]
FREQUENT_REFERENCES = ["amp", "lt;", "nbsp;", "notit;", "not", "#10", "#13;", "#x20;", "#x0b;", "Tab;", "NewLine;"]
# A number of more than 4,300 digits is none to Python.
ODD_REFERENCES = [
    "", "#", "#x", "#" + "0" * 4299 + "9", "#" + "9" * 4301, "#x" + "f" * 4301, "#\u0661", "x" * 33, "lt\u0301",
]
# fmt: on
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CASES = st.sampled_from([str, str, str.upper, str.title])
NAME = st.builds(lambda name, case: case(name), st.sampled_from(NAMES) | st.sampled_from(FREQUENT), CASES)
ATTRIBUTE = st.builds(
    lambda before, name, equals, quotes, value: before + name + equals + quotes.replace("_", value),
    st.sampled_from([" ", " ", " ", "\n", "\xa0", "/", ""]),
    st.sampled_from(["class", "id", "role", "alt", "ALT", "Class", "cla\u017fs", "\u0131d", "data-id", "href"]),
    st.sampled_from(["=", "=", "=", " = ", "=\xa0", "", "=="]),
    st.sampled_from(["_", '"_"', '"_"', "'_'", "x='_'", '_"', "'_"]),
    st.lists(st.sampled_from([*WORDS, "&amp;", ">", "=", "id=menu", "alt='b'"]), max_size=3).map(" ".join),
)
ATTRIBUTES = st.just("") | st.lists(ATTRIBUTE, max_size=3).map("".join) | st.sampled_from(["/", " /", " x", "\x1fx"])
NUMBER = st.integers(0, 0x110010) | st.integers(0, 0xA0) | st.sampled_from([0xD800, 0xDFFF, 0xFDD0, 0xFFFE, 0x1FFFF])
ENTITY = st.integers(0, len(ENTITIES) - 1).map(lambda number: ENTITIES[number])
NUMBERS = NUMBER.map("#{}".format) | NUMBER.map("#X0{:X}".format)
REFERRED = ENTITY | st.sampled_from(FREQUENT_REFERENCES) | NUMBERS | st.sampled_from(ODD_REFERENCES)
REFERENCE = st.builds("&{}{}".format, REFERRED, st.sampled_from(["", ";", "x", "9", "=", "é", " ", "&"]))
BLANK, BREAK = st.sampled_from(BLANKS), st.sampled_from(["<br>", "<br>", " <BR/> "])
TEXT = st.one_of(st.sampled_from(WORDS), BLANK, BLANK, st.sampled_from(MARKS), REFERENCE, ANY_TEXT, BREAK)
TAG = st.builds("<{}{}{}>".format, st.sampled_from(["", "", "/"]), NAME, ATTRIBUTES)
TAG_ENDS = ["", "", " ", "\x85", "/", "x"]


def element(content, name=NAME):
    inner = st.lists(content, max_size=6).map("".join)
    return st.builds("<{0}{1}>{2}</{0}{3}>".format, name, ATTRIBUTES, inner, st.sampled_from(TAG_ENDS))


PIECE = st.recursive(TEXT, element, max_leaves=10) | element(TEXT) | TAG | st.sampled_from(SHARDS)
BROKEN = st.builds("{}{}{}".format, st.lists(PIECE, max_size=5).map("".join), st.sampled_from(UNCLOSED), PIECE)
PAGE = st.builds("".join, st.lists(PIECE, max_size=15)) | BROKEN
SURROUNDINGS = ["<nav>", "<nav>", "</nav>", "</nav>", "<nav/>", "<div id=toc>", "</div>", "<div>", "x", "y<p>"]


ELEMENTS = st.lists(element(TEXT, st.sampled_from(FREQUENT)), max_size=6).map("".join)


@hour_limit
@given(PAGE, ELEMENTS, st.lists(st.sampled_from(SURROUNDINGS)).map("".join))
def test_pages_texts_of_elements_and_nested_surroundings_are_read_as_by_the_slow_twin(page, elements, nested):
    for one in (page, elements, nested):
        assert READER.to_markdown(one) == plain_markdown(one)


@hour_limit
def test_every_element_and_reference_is_read_as_by_the_slow_twin():
    for name in NAMES:
        attributes = ["", "/", *(f" class='x {word}'" for word in WORDS)]
        attributes += [" id=toc", " role=menu", "\tx-id=toc", " alt= b"]
        for opening, closing in product(attributes, TAG_ENDS):
            page = f"a <{name}{opening}> b <i>c</i> </{name}{closing}> d <p> e"
            assert READER.to_markdown(page) == plain_markdown(page)
    names = [f"&{name}" for name in html5]
    numbers = [f"&#{number};&#x{number:x}" for number in (*range(0x2FFF), *range(0xD700, 0x10FFFF, 0x7F), 0x10FFFF)]
    for forms in (names, [name.rstrip(";") for name in names], [name + "x" for name in names], numbers):
        page = "<pre>|" + "|".join(forms) + "|</pre>"
        assert READER.to_markdown(page) == plain_markdown(page)
    for page, place in (("\ud800", 0), ("<p>\udfff", 3), ("x" * 5 + "&#xd800;\ud800", 13)):
        with pytest.raises(ValueError, match=rf"^html: lone surrogate at character {place}$"):
            READER.to_markdown(page)
    for wrong in (None, b"<p>", 3):
        for call in (READER.to_markdown, _core.HtmlReader):
            with pytest.raises(TypeError):
                call(wrong)


@hour_limit
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
@given(tears=st.lists(st.tuples(st.integers(0, 9_999), st.integers(0, 9), PIECE), max_size=5))
def test_real_pages_are_read_as_by_the_slow_twin_whole_and_torn(path, tears):
    page = path.read_text(encoding="utf-8")
    for place, length, piece in tears:
        start = place % len(page)
        page = page[:start] + piece + page[start + length :]
    assert READER.to_markdown(page) == plain_markdown(page)
