"""Web pages as Markdown: the core reads every page as its slow twin does."""

from html.entities import html5
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from tests.support.plain_html import plain_markdown

pytestmark = pytest.mark.timeout(3600)  # with --full

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
NAME = (st.sampled_from(NAMES) | st.sampled_from(FREQUENT)).flatmap(
    lambda name: st.sampled_from([name, name, name.upper(), name.title()])
)
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
REFERENCE = st.builds(
    "&{}{}".format,
    st.one_of(
        st.integers(0, len(ENTITIES) - 1).map(lambda number: ENTITIES[number]),
        st.sampled_from(FREQUENT_REFERENCES),
        NUMBER.map("#{}".format),
        NUMBER.map("#X0{:X}".format),
        st.sampled_from(ODD_REFERENCES),
    ),
    st.sampled_from(["", ";", "x", "9", "=", "é", " ", "&"]),
)
BLANK = st.sampled_from(BLANKS)
TEXT = st.one_of(
    *[st.sampled_from(WORDS), BLANK, BLANK, st.sampled_from(MARKS), REFERENCE, ANY_TEXT],
    st.sampled_from(["<br>", "<br>", " <BR/> "]),
)
TAG = st.builds("<{}{}{}>".format, st.sampled_from(["", "", "/"]), NAME, ATTRIBUTES)
TAG_ENDS = ["", "", " ", "\x85", "/", "x"]


def element(content, name=NAME):
    inner = st.lists(content, max_size=6).map("".join)
    return st.builds("<{0}{1}>{2}</{0}{3}>".format, name, ATTRIBUTES, inner, st.sampled_from(TAG_ENDS))


PIECE = st.recursive(TEXT, element, max_leaves=10) | element(TEXT) | TAG | st.sampled_from(SHARDS)
PAGE = st.builds("".join, st.lists(PIECE, max_size=15)) | st.builds(
    "{}{}{}".format, st.lists(PIECE, max_size=5).map("".join), st.sampled_from(UNCLOSED), PIECE
)


SURROUNDINGS = ["<nav>", "<nav>", "</nav>", "</nav>", "<nav/>", "<div id=toc>", "</div>", "<div>", "x", "y<p>"]


@given(
    PAGE,
    st.lists(element(TEXT, st.sampled_from(FREQUENT)), max_size=6).map("".join),
    st.lists(st.sampled_from(SURROUNDINGS)).map("".join),
)
def test_pages_texts_of_elements_and_nested_surroundings_are_read_as_by_the_slow_twin(page, elements, nested):
    for one in (page, elements, nested):
        assert READER.to_markdown(one) == plain_markdown(one)


@pytest.mark.parametrize("name", NAMES)
def test_every_element_is_read_as_by_the_slow_twin(name):
    attributes = ["", "/", *(f" class='x {word}'" for word in WORDS), " id=toc", " role=menu", "\tx-id=toc", " alt= b"]
    for opening, closing in product(attributes, TAG_ENDS):
        page = f"a <{name}{opening}> b <i>c</i> </{name}{closing}> d <p> e"
        assert READER.to_markdown(page) == plain_markdown(page)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
@given(tears=st.lists(st.tuples(st.integers(0, 9_999), st.integers(0, 9), PIECE), max_size=5))
def test_real_pages_are_read_as_by_the_slow_twin_whole_and_torn(path, tears):
    page = path.read_text(encoding="utf-8")
    for place, length, piece in tears:
        start = place % len(page)
        page = page[:start] + piece + page[start + length :]
    assert READER.to_markdown(page) == plain_markdown(page)


def test_every_reference_is_read_as_python_reads_it():
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
