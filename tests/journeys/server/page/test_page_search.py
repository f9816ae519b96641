"""A question on the page: the order for every weight, its reasons, filters, the keyboard, and how it looks."""

import json
from itertools import pairwise

import pytest

from semlex.types.confidence import SUPPORT_TEXT
from tests.support.http_server import COLLECTION, sync_client_of
from tests.support.shown import HAS_HITS, candidates, click, order, show_all, slide

pytestmark = pytest.mark.slow
QUESTIONS = ("how do I rotate keys", "rotated keys of the vaults", "which filters are there", "xyzzy")
WEIGHTS = sorted({n / 20 for n in range(21)} | {0.01, 0.33, 0.57, 0.99})
DEPTH = 50


@pytest.fixture(scope="module")
def library(handbook_url):
    with sync_client_of(handbook_url) as client:
        yield client.collection(COLLECTION)


def test_the_order_and_the_scores_are_the_librarys_for_every_weight(shown, library):
    """Scores are equal to the last bit for every weight; the page shows the order of three of them."""

    def searched(question, weight):
        return library.search(question, DEPTH, tuning={"candidates": DEPTH}, weights={"vector": weight}, rerank=False)

    for question in QUESTIONS:
        with shown.asking(question) as page:
            show_all(page)
            asked = len(page.requests)
            for weight in (0, 0.33, 1):
                slide(page, weight)
                assert order(page)[:DEPTH] == [hit.id for hit in searched(question, weight)], (question, weight)
            assert len(page.requests) == asked
            if question != QUESTIONS[0]:
                continue
            answer = json.dumps(candidates(page, question))
            for weight in WEIGHTS:
                found = page.value(
                    "import('/page/fusion.js').then(({ measuredBy, ordered }) => {"
                    f" const {{ hits, explanation }} = {answer};"
                    " hits.forEach((hit, at) => Object.assign(hit, { order: explanation.hits[at].order }));"
                    f" return ordered(hits, measuredBy(hits, explanation), {weight}).map(({{ hit, parts }}) =>"
                    " [hit.id, parts.score, parts.words, parts.meaning]); })"
                )
                scores = [
                    [hit.id, hit.fused_score, hit.keyword_contribution, hit.vector_contribution]
                    for hit in searched(question, weight)
                ]
                assert found[:DEPTH] == scores, weight


def test_a_hit_shows_its_arithmetic_and_its_words(shown):
    with shown.asking("how do I rotate keys", w="0.25") as page:
        assert page.value("document.querySelectorAll('.hits mark').length") > 0
        support = SUPPORT_TEXT[candidates(page, "how do I rotate keys")["support"]]
        assert page.value("document.querySelector('.verdict strong').innerText") == f"{support.capitalize()}."
        page.value("document.querySelector('.hits .score summary').click()")
        text = page.wait("document.querySelector('.hits .arithmetic').innerText")
        assert "(1 \N{MINUS SIGN} 0.25) \N{MULTIPLICATION SIGN}" in text
        assert "÷ 6 =" in text
        assert "adds" in page.value("document.querySelector('.hits .terms').innerText")
        # A line of the picture leads from each leg to each fused place that it has.
        assert 8 <= page.value("document.querySelectorAll('.lines path').length") <= 16
        assert page.value("document.getElementById('weight').ariaValueText").startswith("meaning counts")
        bars = page.value(
            """(async () => {
              const { scaleOf, scoreOf } = await import('/page/score.js');
              const rows = [[0.6, -0.4], [0.5, 0.1]].map(([words, meaning]) =>
                ({ parts: { words, meaning, score: words + meaning } }));
              return rows.map(({ parts }) => {
                const made = scoreOf({ terms: [] });
                made.update(parts, 0.5, {}, scaleOf(rows));
                return [...made.element.querySelectorAll('rect')].map((one) => [one.getAttribute('class'),
                  Number(one.getAttribute('x')), Number(one.getAttribute('width'))]);
              });
            })()"""
        )
        # From -0.4 to 0.6 is the whole width: zero is at 40, and a negative part is drawn to its left.
        wanted = [[("words", 40, 60), ("meaning", 0, 40)], [("words", 40, 50), ("meaning", 90, 10)]]
        assert bars == [[[f"bar {kind}", *map(pytest.approx, at)] for kind, *at in row] for row in wanted]


def test_why_something_is_missing_is_asked_beside(shown):
    with shown.asking("how do I rotate keys", told=False) as page:
        page.enter("twin-0", "missing")
        page.wait("document.querySelector('.why .reasons li') !== null")
        assert page.value("document.querySelector('.why table') !== null")
        click(page, ".hits footer button", "Why here?")
        assert page.wait("document.querySelector('.hits > li .reasons')?.innerText").startswith("it is hit 1 of")
        page.enter("no-such-document.md", "missing")
        page.wait("/never_seen|not_indexed|unknown/.test(document.querySelector('.why .answer').innerText)")


def test_filters_are_chosen_and_written(shown):
    with shown.asking("rotated keys of the vaults", told=False) as page:
        page.value("document.querySelector('.filters').open = true")
        page.wait("document.querySelectorAll('.field').length > 0")
        click(page, ".field li button", "2023")
        page.wait("document.querySelectorAll('.hits > li').length === 1")
        assert order(page)[0].startswith("twin-")
        page.value("document.querySelector('.chosen-values button').click()")
        page.wait("document.querySelectorAll('.hits > li').length > 1")
        page.enter("year >= 2024", "filter")
        page.wait("document.querySelectorAll('.hits > li').length === 2")
        page.enter("year => ", "filter")
        said = page.wait("document.getElementById('filter-error').innerText")
        assert "year" in said or "filter" in said
        assert page.value("document.getElementById('filter').getAttribute('aria-invalid')") == "true"


def test_everything_is_reached_with_the_keyboard(shown):
    with shown.at(width=1280) as page:
        page.wait("document.activeElement.id === 'question'")
        page.enter("how do I rotate keys")
        page.wait(HAS_HITS)
        assert page.value("document.querySelector('.hits').getBoundingClientRect().top") < 300
        page.press("Tab")  # the button
        reached = []
        while "ARTICLE" not in reached:
            page.press("Tab")
            reached.append(page.value("document.activeElement.id || document.activeElement.tagName"))
            assert page.value("getComputedStyle(document.activeElement).outlineStyle") != "none", reached
            assert len(reached) < 30
        assert "weight" in reached
        page.resize(1199, 900)
        page.wait("!document.querySelector('.placing').open")  # folded, and the hits are still first
        assert page.value("document.querySelector('.hits').getBoundingClientRect().top") < 300
        page.value("document.querySelector('.placing').open = true")
        shown_first, shown_second, *_ = order(page)
        for keys, wanted in (((), shown_first), (("j",), shown_second), (("k",), shown_first)):
            page.press(*keys)
            assert page.value("document.activeElement.closest('li').dataset.id") == wanted
        page.value("document.getElementById('weight').focus()")
        before = page.value("document.getElementById('weight').value")
        page.press("ArrowRight")
        assert page.value("document.getElementById('weight').value") != before
        page.press("j", "Enter")
        page.wait("document.querySelector('.chunk.is-hit') !== null")
        page.wait("document.activeElement.classList.contains('is-hit')")


def test_the_accessibility_tree_names_everything_and_narrow_windows_do_not_scroll_sideways(shown):
    named = {
        "button", "link", "textbox", "searchbox", "slider", "combobox", "article", "table", "region", "search",
        "navigation", "DisclosureTriangle",
    }  # fmt: skip
    for view, place, roles in (
        ("search", {"q": "how do I rotate keys"}, {"slider", "searchbox", "search", "article", "status"}),
        ("documents", {}, set()),
        ("documents", {"document": "filters.md"}, set()),
        ("collections", {}, set()),
    ):
        with shown.at(view, width=1280, **place) as page:
            page.wait("document.querySelector('.hits > li, main table, .chunk') !== null")
            if "document" not in place:  # its text has tables without names
                tree = page.tree()
                assert [one for one in tree if one["role"] in named and not one["name"].strip()] == []
                assert {"main", "navigation", "banner", "combobox"} | roles <= {one["role"] for one in tree}
                levels = [one["level"] for one in tree if one["role"] == "heading"]
                assert levels[0] == 1
                assert all(below - above <= 1 for above, below in pairwise(levels))
            page.resize(360, 900)
            page.value("document.querySelectorAll('details').forEach((one) => (one.open = true))")
            page.draw()
            assert page.value("document.documentElement.scrollWidth") == 360, view


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_are_readable_and_hits_slide_unless_motion_is_reduced(shown, scheme):
    with shown.asking("how do I rotate keys", scheme=scheme, reduced=scheme == "light") as page:
        # Contrast by WCAG 2: 4.5 for text, of every element that holds some, against what it stands on.
        low = page.value(
            """(() => {
              const part = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
              const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
              const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
              const ground = (one) => {
                for (; one; one = one.parentElement) {
                  const colour = numbers(getComputedStyle(one).backgroundColor);
                  if (colour.length < 4 || colour[3] > 0) return colour;
                }
              };
              return [...document.querySelectorAll('body *')].filter((one) => one.offsetParent
                && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((one) => {
                  const [a, b] = [light(numbers(getComputedStyle(one).color)), light(ground(one))];
                  return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.className, one.innerText];
                }).filter(([contrast]) => contrast < 4.5);
            })()"""
        )
        assert low == []
        dark = page.value("getComputedStyle(document.documentElement).backgroundColor")
        assert (dark == "rgb(20, 23, 26)") == (scheme == "dark")
        page.value("window.moved = 0; Element.prototype.animate = () => window.moved++")
        slide(page, 0)
        slide(page, 1)
        assert (page.value("window.moved") == 0) == (scheme == "light")
