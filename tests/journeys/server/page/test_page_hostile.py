"""Documents that try to become a part of the page: they stay text, whatever they hold and wherever it is shown."""

import json

import pytest

from semlex import Document
from semlex.cli.terminal import marked_text
from tests.journeys.server.page.conftest import shown_of
from tests.support.http_server import COLLECTION, sync_client_of
from tests.support.shown import HAS_HITS, candidates, click, show_all

pytestmark = pytest.mark.slow
ATTACKS = (
    "<script>window.broken = 1</script>",
    "<img src=//evil.example/x onerror='window.broken = 1'>",
    '"><svg onload=window.broken=1>',
    "' onmouseover='window.broken=1' x='",
    "</pre></article></main><iframe srcdoc='<script>parent.broken=1</script>'></iframe>",
    "<a href='javascript:window.broken=1'>key</a>",
    "javascript:window.broken=1",
    "{{constructor.constructor('window.broken=1')()}} ${window.broken=1}",
    "\u202egpj.exe \u2066isolated\u2067 \u200e\u200f\u061c",
    "**<b>key</b>** and ** one ** more ** star",
    "<style>body{display:none}</style><base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "]]><!--<template><form action=//evil.example><input name=token></form>",
)  # fmt: skip
# What the page makes itself.
OWN = {
    "HTML", "HEAD", "META", "TITLE", "LINK", "SCRIPT", "BODY", "HEADER", "P", "NAV", "A", "LABEL", "SELECT", "OPTION",
    "MAIN", "NOSCRIPT", "SECTION", "FORM", "INPUT", "BUTTON", "DETAILS", "SUMMARY", "UL", "OL", "LI", "DIV", "SPAN",
    "H1", "H2", "H3", "H4", "BDI", "MARK", "DL", "DT", "DD", "BR", "ARTICLE", "FOOTER", "KBD", "CODE", "PRE", "OUTPUT",
    "TABLE", "CAPTION", "THEAD", "TBODY", "TR", "TH", "TD", "TIME", "STRONG", "PROGRESS", "svg", "path", "rect",
}  # fmt: skip
ATTRIBUTES = {
    "id", "class", "for", "name", "type", "value", "min", "max", "step", "href", "rel", "src", "lang", "charset",
    "role", "content", "tabindex", "title", "dir", "hidden", "open", "autocomplete", "spellcheck", "placeholder",
    "disabled", "scope", "datetime", "data-head", "viewBox", "x", "width", "height", "preserveAspectRatio", "d",
    "vector-effect",
}  # fmt: skip
NAMES = "[...document.querySelectorAll('.hits h3')].map((one) => one.innerText).join(' ')"
LOOK = """({ tags: [...new Set([...document.querySelectorAll('*')].map((one) => one.tagName))],
  attributes: [...new Set([...document.querySelectorAll('*')].flatMap((one) => one.getAttributeNames()))],
  links: [...document.querySelectorAll('[href], [src]')].map((one) => one.getAttribute('href') ?? one.src),
  scripts: document.querySelectorAll('script').length,
  broken: window.broken ?? null,
  base: document.baseURI })"""
STARRED = [
    ("a **b** c", "a b c"), ("a ** b", "a ** b"), ("**<i>**", "**<i>**"), ("**now **key** of**", "**now key of**"),
    ("****key****", "**key**"), ("***key***", "*key*"), ("**a** … ** b **c**", "x a y ** b c z"),
    ("not of **this**", "other"), ("**key** **key** \U0001f511 **key**", "key key \U0001f511 key"),
]  # fmt: skip
DRAWN = [
    ("2 ** 3 and 4 ** 5, **bold** and *soft*", "P:2 ** 3 and 4 ** 5, bold and soft"),
    ("a *b * c *d", "P:a *b * c *d"),
    ("| a | b |\n|---|---|\n| - | -- |\n| 1 | 2 |", "TABLE:ab---12"),
    ("|---|---|\n| 1 | 2 |", "TABLE:12"),
    ("```x``` is code.\n````py\n*y*\n````", "P:x is code.,PRE:*y*"),
]


@pytest.fixture(scope="module")
def hostile(new_database, browser, tmp_path_factory):
    url, folder = new_database(), tmp_path_factory.mktemp("hostile")
    documents = [
        Document("key " + "<b>x" * 25_000, id="long " + "x" * 480),
        Document("key of words. " * 20 + "\U0001f511" * 20_000, id="wide"),
    ]
    for number, attack in enumerate(ATTACKS):
        path = folder / f"{number} {attack.replace('/', '|')[:80]}.md"
        path.write_text(f"# {attack}\n\nThe key is turned. {attack}\n\n## key {attack}\n\nAnother key.\n", "utf-8")
        named = dict.fromkeys((attack, "kind", "title"), attack)
        documents.append(Document(f"A key: {attack}", named, id=f"{number} {attack}"))
    with sync_client_of(url) as client:
        client.collection(COLLECTION).index(folder)
        client.collection(COLLECTION).add_documents(documents)
    with shown_of(browser, url, judgements=folder / "judged", rights="write") as shown:
        yield shown


def check(page, address):
    found = page.value(LOOK)
    assert (found["broken"], found["scripts"]) == (None, 1)
    assert set(found["tags"]) <= OWN
    assert {name for name in found["attributes"] if not name.startswith(("aria-", "data-id"))} <= ATTRIBUTES
    assert {one for one in found["links"] if not one.startswith(("#", "page/", f"{address}/page/"))} == set()
    assert found["base"].startswith(address)


def test_hits_stay_text(hostile):
    for question in ("key", ATTACKS[1]):
        with hostile.at(q=question) as page:
            page.wait(HAS_HITS)
            show_all(page)
            page.value("document.querySelectorAll('details').forEach((one) => (one.open = true))")
            page.wait("document.querySelectorAll('.field').length > 0")
            check(page, hostile.address)
            assert "<script>window" in page.value("document.querySelector('.hits').innerText").replace("\u200b", "")
            # What turns the direction of writing is seen, and does not reach the line behind a name.
            assert question != "key" or "[U+202E]gpj.exe [U+2066]isolated[U+2067]" in page.value(NAMES)
            assert page.value(r"/[\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText)") is False
            for width in (1100, 360):
                page.resize(width, 900)
                page.draw()
                assert page.value("document.documentElement.scrollWidth") == width


def test_reasons_judgements_and_values_that_are_chosen_stay_text(hostile):
    with hostile.at(q="key", told=False) as page:
        page.wait(HAS_HITS)
        for name in (ATTACKS[1], f"0 {ATTACKS[0]}", "x" * 3000):
            page.enter(name, "missing")
            page.wait("document.querySelector('.why .reasons, .why .error') !== null")
            check(page, hostile.address)
        page.value("document.querySelector('.hits article').focus()")
        page.press("3")
        page.wait("document.querySelector('.judging pre') !== null")
        check(page, hostile.address)
        page.value("document.querySelector('.filters').open = true")
        page.wait("document.querySelectorAll('.field').length > 0")
        click(page, ".field li button", ATTACKS[0])
        page.wait("document.querySelectorAll('.hits > li').length === 1")
        check(page, hostile.address)


def test_documents_and_their_headings_stay_text(hostile):
    with hostile.at("documents", width=360) as page:
        page.wait("document.querySelectorAll('main table').length === 2")
        check(page, hostile.address)
        links = page.value("[...document.querySelectorAll('main table a')].map((one) => one.hash)")
        assert len(links) >= 2 * len(ATTACKS)
        for link in [*links[: len(ATTACKS)], links[-1], links[-2]]:
            page.value("document.querySelectorAll('.chunk').forEach((one) => (one.isOld = true))")
            page.value(f"location.hash = {json.dumps(link)}")
            page.wait("[...document.querySelectorAll('.chunk')].some((one) => !one.isOld)")
            check(page, hostile.address)
            assert page.value("document.documentElement.scrollWidth") == 360


def test_the_page_cannot_make_markup_of_a_text(hostile):
    with hostile.browser.page() as page:
        page.open(f"{hostile.address}/")
        page.wait("document.getElementById('collection')?.options.length > 0")
        for attempt in (
            "document.body.innerHTML = '<b>x</b>'", "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
            "document.write('<b>x</b>')", "eval('1')", "new Function('return 1')()",
            "document.createElement('script').textContent = 'x'",
        ):  # fmt: skip
            refused = page.value(f"(() => {{ try {{ {attempt} }} catch (error) {{ return error.name }} }})()")
            assert refused in ("TypeError", "EvalError"), attempt


def spans_of(text):
    return [text.plain[span.start : span.end] for span in text.spans]


def test_stars_of_a_text_are_told_from_marks_and_markdown(hostile):
    with hostile.at() as page:
        for excerpt, content in STARRED:
            wanted = marked_text(excerpt, content, "bold")
            found = page.value(
                f"import('/page/words.js').then(({{ marked }}) => marked({json.dumps(excerpt)}, {json.dumps(content)})"
                ".map((one) => [one.textContent ?? one, one.tagName === 'MARK']))"
            )
            assert "".join(text for text, _ in found) == wanted.plain
            assert [text for text, is_marked in found if is_marked] == spans_of(wanted)
        for text, wanted in DRAWN:
            found = page.value(
                f"import('/page/text.js').then(({{ drawn }}) => drawn({json.dumps(text)}, false)"
                ".map((one) => one.tagName + ':' + one.textContent).join())"
            )
            assert found == wanted


def test_marks_are_those_of_the_library(hostile):
    with hostile.asking("key of words", told=False) as page:
        show_all(page)
        shown = page.value(
            "Object.fromEntries([...document.querySelectorAll('.hits > li')].map((one) => [one.dataset.id,"
            " [...one.querySelectorAll('.excerpt mark')].map((mark) => mark.textContent)]))"
        )
        for hit in candidates(page, "key of words")["hits"]:
            assert shown[hit["id"]] == spans_of(marked_text(hit["excerpt"], hit["content"], "bold"))
