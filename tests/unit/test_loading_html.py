"""Web pages as Markdown: what is kept of a page, and that no page stops a run."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.ingest.loaders.base import FileBytes, LoadOptions
from semlex.ingest.loaders.markdown import HtmlLoader, MarkdownLoader, html_to_markdown


def test_a_page_becomes_markdown():
    page = """<!DOCTYPE html><html><head><title>The &amp;
    title</title><style>p { color: red }</style></head>
    <body><!-- a comment <p> --><nav>Home</nav>
    <h1>One<br/>heading</h1><p class="a>b">Text with <b>bold</b>, &lt;tags&gt; &amp; more.
    # no heading<br># nor here<br>====</p>
    <script>if (a < b) { document.write("<p>no</p>") }</script>
    <ul><li>first<li><p>second</p><p>its second paragraph</p></li></ul>after
    <table><tr><th>a<th>b</tr><tr><td>1</td><td>2</td></tr></table>
    <pre>  indented ```
# no heading</pre>
    <H2 id=x>Two</H2><svg><title>no</title></svg>tail <img src="x" alt='a picture'> 1 < 2 & 3 <> </3"""
    loaded = HtmlLoader().load(FileBytes("page.html", page.encode(), b"", datetime.now(UTC)), LoadOptions())
    assert loaded.title == "The & title"
    assert loaded.text.split("\n\n") == [
        "# One heading", "Text with bold, <tags> & more. # no heading\n\\# nor here\n\\====", "- first", "- second",
        "its second paragraph", "after", "a | b", "1 | 2", "````\n  indented ```\n# no heading\n````", "## Two",
        "tail a picture 1 < 2 & 3 <> </3",
    ]  # fmt: skip


@pytest.mark.parametrize(("page", "text"), [
    ("<nav>a<nav>b</nav>c</nav>text", "text"),
    ("one<aside>a</aside>two<footer>c</footer>", "one\n\ntwo"),
    ('<div id="x" class="big menu"><div>a</div>b</div>text', "text"),
    ("<ul class=toc><li>a</ul>text<div role='Navigation'>a</div>", "text"),
    ('<h2>Two<a class="headerlink" href="#two">\u00b6</a></h2>text', "## Two\n\ntext"),
    ('<p class="menu">text</p><div data-x="menu">too</div>', "text\n\ntoo"),
    ("<nav>nothing else</nav>", "nothing else"),  # better than no text
    ("<div class=menu>never closed", "never closed"),
])  # fmt: skip
def test_what_surrounds_the_text_of_a_page_is_left_out(page, text):
    assert html_to_markdown(page).text == text


@pytest.mark.parametrize(("page", "text", "title"), [
    ("", "", None),
    ("<h1>Only</h1>", "# Only", "Only"),
    ("<h1></h1><title></title>x", "x", None),
    ("<title>never closed", "", "never closed"),
    ("<title>never <p>closed", "closed", "never"),
    ("a<script>never closed", "a", None),
    ("a<script>x</SCRIPT >b", "ab", None),
    ("a<!-- never closed <p>b", "a", None),
    ("a<!-->b", "ab", None),
    ("a<![if x]>b<?php c ?>d", "abd", None),
    ("a<p title='never closed>b", "a", None),
    ("a<template><template>x</template>y</template>b", "ab", None),
    ("a<svg/>b", "ab", None),
    ("<textarea><p>one</textarea>", "<p>one", None),
    ("a</\u00e9>b</3>c", "a</\u00e9>b</3>c", None),  # a name begins with a letter of ASCII
    ("a<script>b</\u017fcript>c</script>d", "ad", None),
    ("&#0;&#xD800;", "\ufffd\ufffd", None),
    ("a&amp;&#" + "9" * 5000 + ";<b>&amp;", "a&amp;&#" + "9" * 5000 + ";&", None),  # no number that Python makes
])  # fmt: skip
def test_malformed_pages(page, text, title):
    assert html_to_markdown(page) == (text, title)


HOSTILE = (
    '<!--|<a |<!|<![|</|&|&#|<p|<a b="|<a b=\'">|<?|<script>|<title>|<textarea>|<![CDATA[|<div>|<br>| <b> </b>|`|<a =|'
    "<a = |<img alt|<pre>|<svg>|#|\t|<a '>|<nav>|<div class|<div class=|<div id=menu>|<|<title |<pre>x|'|=|&#x|&a|&amp|"
    '"|<nav></nav>|<nav/>x|</title|<title></title|<script></scrip|<div id= >|<img alt="\' >|\n<br>|<li>|<h1>a|-->'
)
HOSTILE_ATTRIBUTES = ("id=", " id=", " id='", ' class="', " class = '", "  class", "=", "='", "\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "piece"),
    [*(("", piece) for piece in HOSTILE.split("|")), *(("<div ", piece) for piece in HOSTILE_ATTRIBUTES)],
)
def test_long_malformed_pages_are_read_to_their_end(start, piece):
    """A reader that looks again at all that follows each piece would look at a million times a million characters."""
    result = html_to_markdown(start + piece * (4_000_000 // len(piece)) + ">x")
    assert len(result.text) <= 12_000_000


PIECES = (
    "< > </ <p> <li> <h1> <pre> </pre> <title> </title> <!-- --> <script> </script> <svg> </svg> <td> <tr> <br> = / # "
    "```"
)


@given(page=st.lists(st.one_of(st.text(max_size=8), st.sampled_from([*PIECES.split(), '"', "'", " "])), max_size=30))
def test_any_page_becomes_storable_text(page):
    result = html_to_markdown("".join(page))
    result.text.encode()  # storable: no lone surrogate
    fence = ""
    for line in result.text.split("\n"):
        if line.startswith("```"):
            fence = "" if fence and line == fence else fence or line
    assert fence == ""  # no code block of the page swallows what follows


@given(words=st.lists(st.sampled_from(["one", "#", "##", "===", "---", "```", "~~~", "two"]), min_size=1, max_size=6))
def test_text_never_becomes_structure(words):
    body = "<br>".join(words)
    result = html_to_markdown(f"<p>{body}</p>")
    file = FileBytes("page.md", result.text.encode(), b"", datetime.now(UTC))
    assert MarkdownLoader().load(file, LoadOptions()).title is None
    assert result.text.replace("\\", "").split("\n") == words
