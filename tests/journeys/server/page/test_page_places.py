"""The page where something is missing or different: a token, vectors, documents, a server; jobs that go on."""

import pytest

from semlex import Document, SyncClient
from semlex.server.tokens import TokenFile
from tests.journeys.server.page.conftest import shown_of
from tests.support.databases import execute
from tests.support.http_server import COLLECTION, sync_client_of
from tests.support.shown import HAS_HITS, RING, TIMERS, click, hold, order, release

pytestmark = pytest.mark.slow
TEXT = "document.querySelector('main').innerText"
SHOWN_ACTIONS = "[...document.querySelectorAll('.actions button:enabled')].map((one) => one.textContent).join()"


@pytest.fixture(scope="module")
def url(new_database, tmp_path_factory):
    """A database with three collections: of both legs, of words alone, and without documents."""
    url = new_database()
    manual = tmp_path_factory.mktemp("manual")
    parts = (f"## The part {n}\n\nPart **{n}** is kept in drawer {n}.\n\n- `code{n}`\n" for n in range(200))
    manual.joinpath("long.md").write_text("# The parts\n\n" + "\n".join(parts))
    documents = [Document(f"Key number {n} opens door {n}.", id=f"d{n}") for n in range(30)]
    with sync_client_of(url) as client, SyncClient(url, "none", use_reranking=False) as without_vectors:
        for name in (COLLECTION, "empty"):
            client.collection(name).add_documents(documents)
        client.collection(COLLECTION).index(manual)
        client.collection("empty").delete([f"d{n}" for n in range(30)])
        without_vectors.collection("words").add_documents(documents)
    return url


@pytest.fixture(scope="module")
def served(url, browser):
    with shown_of(browser, url) as shown:
        yield shown


def test_a_token_is_asked_for_and_kept_below_a_path(url, browser, tmp_path):
    secret = TokenFile(tmp_path / "tokens.json").add("ann", "read")
    with (
        shown_of(browser, url, token_file=tmp_path / "tokens.json", below="/docs/search") as shown,
        browser.page() as page,
    ):
        address = f"{shown.address}/docs/search/#search?q=key"
        page.open(address)
        page.wait("document.activeElement?.id === 'token'")
        assert "needs a token" in page.value(TEXT)
        page.enter("semlex_wrong")
        page.wait(f"{TEXT}.includes('does not know this token')")
        page.enter(secret)
        page.wait(HAS_HITS)
        assert secret not in page.value("location.href + document.body.innerHTML")
        page.open("about:blank")
        page.open(address)
        page.wait(HAS_HITS)
        click(page, ".hits footer button", "Open")
        page.wait("document.querySelector('.chunk.is-hit') !== null")
        assert not [one for one in page.errors if "Failed to load resource" not in one]


def test_nothing_found_and_nothing_there_are_told(served):
    with served.at(collection="empty") as page:
        page.value(TIMERS)  # what is said to those who listen stays
        page.wait("document.activeElement.id === 'question'")
        page.enter("key")
        page.wait(f"{TEXT}.includes('Nothing was found')")
        assert page.value("document.querySelector('#status').textContent") != ""
    with served.at("documents", collection="empty") as page:
        page.wait(f"{TEXT}.includes('semlex index FOLDER --collection empty')")


def test_another_collection_is_chosen_whose_only_leg_leaves_nothing_to_weigh(served):
    with served.asking("key number 7") as page:
        page.value("document.getElementById('collection').value = 'words'")
        page.value("document.getElementById('collection').dispatchEvent(new Event('change'))")
        page.wait(f"{TEXT}.includes('nothing to weigh') && {HAS_HITS}")
        assert page.value("document.querySelector('.weighing').offsetParent === null")
        assert order(page)[0] == "d7"
        page.press("j")
        assert page.value("document.activeElement.tagName") == "ARTICLE"
        assert "collection=words" in page.value("location.hash")
        assert page.value("document.getElementById('question').value") == "key number 7"
        click(page, "nav a", "Documents")
        page.wait("document.querySelectorAll('main td a').length === 30")
        assert page.value("document.getElementById('collection').value") == "words"
        click(page, "main td a", "d7")
        page.wait("document.querySelectorAll('.chunk').length === 1")
        page.value("history.back()")
        page.wait("document.querySelectorAll('main td a').length === 30")
        page.value("location.hash = '#search?collection=elsewhere&q=key'")
        page.wait(f"{TEXT}.startsWith('No collection elsewhere')")


def test_before_a_question_there_are_examples(served):
    with served.at() as page:
        click(page, ".examples a", page.wait("document.querySelector('.examples a')?.textContent"))
        page.wait(HAS_HITS)
        assert "The part" in page.value("document.getElementById('question').value")
        page.value("history.back()")
        page.wait(f"/has 31 documents in \\d+ chunks[^]*Among its titles: The parts\\./.test({TEXT})")


def test_a_document_is_drawn_and_turned(served):
    with served.at("documents", document="long.md") as page:
        page.wait("document.querySelectorAll('.chunk').length === 40")
        assert "#" not in page.value("document.querySelector('.text').innerText")
        drawn = page.value(
            "[...document.querySelectorAll('.chunk :is(h4, strong, code)')].map((one) => one.textContent)"
        )
        assert drawn[:3] == ["The part 0", "0", "code0"]
        click(page, ".turner button", "Later")
        page.wait("document.activeElement.textContent.startsWith('chunk 41')")
        click(page, ".outline button", "The part 3")
        page.wait("document.activeElement.textContent.includes('The part 3')")


def test_the_address_holds_question_weight_and_filter(served):
    with served.asking("key number 7", w="0.25", filter="not exists year") as page:
        assert page.value("document.getElementById('weight').value") == "0.25"
        assert page.value("document.getElementById('filter').value") == "not exists year"
        place = page.value("location.href")
        page.open("about:blank")
        page.open(place)
        page.wait(f"location.href === {place!r} && {HAS_HITS}")
        assert page.value("document.getElementById('weight').value") == "0.25"
    with served.at(q="key", filter="exists year") as page:
        page.wait(f"{TEXT}.includes('Nothing was found')")


def test_jobs_are_followed_while_they_are_seen(served, url):
    execute(url, "DELETE FROM semlex.job")
    with sync_client_of(url) as client, served.at() as page:
        page.value(TIMERS)
        click(page, "nav a", "Collections")
        page.wait("document.querySelector('main table') !== null")
        job = client.collection(COLLECTION).jobs.submit("optimize")
        for state, go_on in (("queued", job.cancel), ("cancelled", lambda: None)):
            page.wait("window.timers.length > 0")
            page.value(RING)
            page.wait(f"{TEXT}.includes('{state}')")
            # Callers that can only read get no actions.
            assert page.value("document.querySelectorAll('.actions').length") == 0
            assert "Action" not in page.value(TEXT)
            go_on()
        page.wait("window.timers.length > 0")
        click(page, "nav a", "Search")
        page.wait("document.getElementById('question') !== null")
        asked = page.requests.count(f"{served.address}/v1/jobs")
        page.value(RING)
        page.draw()
        page.value("fetch('/healthz').then(() => true)")  # what was asked before it is known by then
        assert page.requests.count(f"{served.address}/v1/jobs") == asked == 3


def test_jobs_are_cancelled_and_retried(url, browser):
    execute(url, "DELETE FROM semlex.job")
    with shown_of(browser, url, rights="admin") as shown, sync_client_of(url) as client:
        job = client.collection(COLLECTION).jobs.submit("optimize")
        with shown.at("collections", width=390) as page:
            page.value(TIMERS)
            page.wait(f"({SHOWN_ACTIONS}) === 'Cancel optimize of {COLLECTION}'")
            hold(page, "v1/jobs/")
            for _ in range(2):  # quick clicks
                click(page, ".actions button", "Cancel")
            for _ in range(2):
                release(page)
            page.wait(f"({SHOWN_ACTIONS}) === 'Retry optimize of {COLLECTION}'")
            assert job.status().state == "cancelled"
            failed = "UPDATE semlex.job SET state = 'failed', error_code = 'x', error_message = %s"
            execute(url, failed, ["no /srv/" + "x" * 99])
            page.value(RING)
            page.wait(f"{TEXT}.includes('failed')")
            page.value("document.querySelector('.stacks details').open = true")
            page.value("document.querySelector('.actions button:enabled').focus()")
            page.press("Enter")
            release(page)
            page.wait(f"({SHOWN_ACTIONS}) === 'Cancel optimize of {COLLECTION}'")
            assert page.value("document.activeElement.value") == "Cancel"
            execute(url, "UPDATE semlex.job SET state = 'running', started_at = now(), attempts = 1")
            page.wait("window.timers.length > 0")
            page.value(RING)
            page.wait(f"{TEXT}.includes('running')")
            click(page, ".actions button", "Cancel")
            release(page)
            page.wait(f"{TEXT}.includes('running, ends after its batch')")
            assert page.value(SHOWN_ACTIONS) == ""
            assert job.status().cancel_wanted
            # A job is a block in a narrow window: each cell has its name, and nothing is out of sight.
            is_narrow = "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)"
            assert page.value(f"{is_narrow}(document.querySelector('.stacks'))")
            name = page.value("getComputedStyle(document.querySelector('.stacks td:nth-child(3)'), '::before').content")
            assert name == '"State"'


def test_a_server_that_is_gone_is_told(served):
    with served.browser.page() as page:
        page.open(f"{served.address}/#search?q=key")
        page.wait(HAS_HITS)
        throughput = dict.fromkeys(("latency", "downloadThroughput", "uploadThroughput"), 0)
        page.ask("Network.emulateNetworkConditions", offline=True, **throughput)
        page.enter("key", "question")
        page.wait(f"{TEXT}.includes('The server does not answer')")
        page.ask("Network.emulateNetworkConditions", offline=False, **dict.fromkeys(throughput, -1) | {"latency": 0})
