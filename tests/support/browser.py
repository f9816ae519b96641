"""A headless Chromium for tests, driven by the DevTools protocol over two pipes: nothing to install but the browser."""

import base64
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import LIMIT, until

NAMES = ("chromium", "google-chrome", "chromium-browser", "google-chrome-stable")
REQUIRED = "SEMLEX_REQUIRE_BROWSER"
WITHOUT = f"there is no Chromium here ({', '.join(NAMES)}); {REQUIRED}=1 makes that a failure"
FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-default-apps", "--disable-extensions", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en-GB", "--mute-audio",
)  # fmt: skip
# What a shell makes of a browser that reads from 3 and writes to 4.
WITH_PIPES = 'reads=$1; writes=$2; shift 2; exec "$@" 3<"/dev/fd/$reads" 4>"/dev/fd/$writes"'
KEYS = {
    "Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Delete": ("Delete", 46, ""), "Escape": ("Escape", 27, ""),
    "ArrowRight": ("ArrowRight", 39, ""), "ArrowLeft": ("ArrowLeft", 37, ""), "End": ("End", 35, ""),
    "Home": ("Home", 36, ""), " ": ("Space", 32, " "),
}  # fmt: skip


def required_executable():
    """The browser; where there is none the test is left out, or fails where one is required."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    return (pytest.fail if os.environ.get(REQUIRED) == "1" else pytest.skip)(WITHOUT)


class BrowserError(AssertionError):
    """The browser refused, or what was waited for did not come."""


class Browser:
    def __init__(self, program, folder):
        to_browser, from_us = os.pipe()
        from_browser, to_us = os.pipe()
        sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
        command = [program, *FLAGS, *sandbox, f"--user-data-dir={folder}", "about:blank"]
        shell = ["/bin/sh", "-c", WITH_PIPES, "sh", str(to_browser), str(to_us), *command]
        silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self._process = subprocess.Popen(shell, pass_fds=(to_browser, to_us), **silent)
        os.close(to_browser)
        os.close(to_us)
        self._writing, self._reading = from_us, from_browser
        self._answers, self.pages = {}, {}
        self._last, self._lock = 0, threading.Lock()
        self._idle = []  # targets of pages that have ended
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        rest = b""
        while part := os.read(self._reading, 1 << 20):
            *messages, rest = (rest + part).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._answers[message["id"]].put(message)
                elif (page := self.pages.get(message.get("sessionId", ""))) is not None:
                    page.heard(message["method"], message["params"])

    def ask(self, method, session=None, **params):
        with self._lock:
            self._last += 1
            number, answers = self._last, queue.Queue()
            self._answers[number] = answers
            message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
            os.write(self._writing, json.dumps(message).encode() + b"\0")
        try:
            answer = answers.get(timeout=LIMIT)
        except queue.Empty:
            raise BrowserError(f"{method}: no answer within {LIMIT:g} s") from None
        del self._answers[number]
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        return answer.get("result", {})

    @contextmanager
    def page(self, width=1100, height=900, *, scheme="light", reduced=True):
        """A page that remembers nothing; the next one gets its process, for a new one takes a second to begin."""
        target = self._idle.pop() if self._idle else self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        made = self.pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            made.ask(f"{domain}.enable")
        made.resize(width, height)
        features = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce" if reduced else "no-preference"}
        made.ask("Emulation.setEmulatedMedia", features=[{"name": name, "value": features[name]} for name in features])
        try:
            yield made
            made.value("location.protocol === 'about:' || sessionStorage.clear()")
            made.open("about:blank")
            self.ask("Target.detachFromTarget", sessionId=session)
            self._idle.append(target)
        finally:
            del self.pages[session]
            if target not in self._idle:
                self.ask("Target.closeTarget", targetId=target)

    def close(self):
        try:
            self.ask("Browser.close")
            self._process.wait(LIMIT)
        except (BrowserError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._writing)
        self._reader.join(LIMIT)
        os.close(self._reading)


class Page:
    def __init__(self, browser, session):
        self._browser, self._session = browser, session
        self.errors, self.requests = [], []

    def heard(self, method, params):
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str([one.get("value", one.get("description")) for one in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def ask(self, method, **params):
        return self._browser.ask(method, self._session, **params)

    def resize(self, width, height):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def open(self, url):
        answer = self.ask("Page.navigate", url=url)
        if "errorText" in answer:
            raise BrowserError(answer["errorText"])

    def value(self, expression):
        options = {"returnByValue": True, "awaitPromise": True, "allowUnsafeEvalBlockedByCSP": False}
        answer = self.ask("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"].get("exception", {}).get("description")))
        return answer["result"].get("value")

    def wait(self, expression):
        """What an expression is as soon as it is true."""
        try:
            return until(lambda: self.value(expression), expression)
        except BrowserError:
            raise
        except AssertionError as error:
            shown = self.value("document.body.innerText.slice(0, 2000)")
            raise BrowserError(f"{error}; errors: {self.errors}; the page says: {shown}") from None

    def draw(self):
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def press(self, *keys):
        for key in keys:
            name, code, text = KEYS.get(key, (f"Key{key.upper()}", ord(key[0].upper()), key))
            shared = {"key": key, "code": name, "windowsVirtualKeyCode": code}
            self.ask("Input.dispatchKeyEvent", type="keyDown", **shared, **({"text": text} if text else {}))
            self.ask("Input.dispatchKeyEvent", type="keyUp", **shared)

    def enter(self, text, field=None):
        """Writes a text where the focus is, or in place of the text of a field, and presses Enter."""
        if field is not None:
            self.value(f"(() => {{ const it = document.getElementById('{field}'); it.focus(); it.select(); }})()")
        self.ask("Input.insertText", text=text)
        self.press("Enter")

    def tree(self):
        """What programs for the blind see: role and name of everything that is not hidden."""
        return [
            {
                "role": node.get("role", {}).get("value", ""),
                "name": node.get("name", {}).get("value", ""),
                **{one["name"]: one["value"].get("value") for one in node.get("properties", ())},
            }
            for node in self.ask("Accessibility.getFullAXTree")["nodes"]
            if not node.get("ignored")
        ]

    def picture(self):
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])


@contextmanager
def browser_of(program):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Browser(program, Path(folder))
        try:
            yield made
        finally:
            made.close()
