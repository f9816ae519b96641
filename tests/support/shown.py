"""The page in a browser, with what tests do on it."""

import json
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

from tests.support.browser import Browser

# In place of the browser's own: calls that wait until `ring`.
TIMERS = "window.timers = []; window.setTimeout = (call, _, ...rest) => window.timers.push(() => call(...rest))"
RING = "window.timers.splice(0).forEach((call) => call())"
# In place of the browser's own: requests of a path wait until `release`.
HELD = """(path) => {
  const real = window.fetch;
  Object.assign(window, { held: [], answered: 0 });
  window.fetch = async (asked, options) => {
    if (!asked.startsWith(path)) return real(asked, options);
    await new Promise((go) => window.held.push({ body: options.body, go }));
    try {
      return await real(asked, options);
    } finally {
      window.answered++;
    }
  };
}"""
HAS_HITS = "document.querySelectorAll('.hits > li').length > 0"


@dataclass(frozen=True)
class Shown:
    browser: Browser
    address: str
    collection: str

    @contextmanager
    def at(self, view="search", *, told=True, **place):
        """The page at a place; afterwards it has said nothing wrong, and asked nobody but its server.

        What the browser says of refused requests is wrong, too, unless `told` is False. `place` is what the address
        says; `width`, `height`, `scheme` and `reduced` are those of the window.
        """
        window = {name: place.pop(name) for name in ("width", "height", "scheme", "reduced") if name in place}
        with self.browser.page(**window) as page:
            page.open(f"{self.address}/#{view}?{urlencode({'collection': self.collection, **place})}")
            page.wait("document.querySelector('main section') !== null")
            yield page
            page.draw()
            errors = page.errors if told else [one for one in page.errors if "Failed to load resource" not in one]
            assert errors == []
            assert {one for one in page.requests if not one.startswith((f"{self.address}/", "blob:"))} == set()

    @contextmanager
    def asking(self, question, **place):
        with self.at(q=question, **place) as page:
            page.wait(HAS_HITS)
            yield page


def slide(page, weight):
    page.value(f"document.getElementById('weight').value = '{weight}'")
    page.value("document.getElementById('weight').dispatchEvent(new Event('input'))")


def order(page):
    return page.value("[...document.querySelectorAll('.hits > li')].map((item) => item.dataset.id)")


def hold(page, path):
    """Keeps the page's requests of a path until `release`."""
    page.value(f"({HELD})({json.dumps(path)})")


def release(page):
    """Sends the request that was made last, and returns its body when it is answered."""
    page.wait("window.held.length > 0")
    answered = page.value("window.answered")
    body = page.value("(() => { const last = window.held.pop(); last.go(); return last.body; })()")
    page.wait(f"window.answered > {answered}")
    return json.loads(body or "{}")


def show_all(page):
    while page.value("!document.querySelector('.more').hidden"):
        click(page, ".more")


def click(page, selector, text=""):
    """Clicks the first of the elements whose text begins so."""
    found = page.value(
        f"(() => {{ const all = [...document.querySelectorAll({json.dumps(selector)})];"
        f" const one = all.find((one) => one.textContent.startsWith({json.dumps(text)})); one?.click();"
        " return one !== undefined; })()"
    )
    assert found, (selector, text)


def candidates(page, question):
    """What the server answers to the page's own request."""
    body = json.dumps(json.dumps({"query": question, "depth": 50}))
    return page.value(
        "(async () => (await fetch('/v1/candidates', { method: 'POST', headers: {'Content-Type': 'application/json'},"
        f" body: {body} }})).json())()"
    )
