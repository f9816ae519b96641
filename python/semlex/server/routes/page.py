"""The web page: its files, and the judgements that people make on it. Its routes are not in the API description."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from semlex.errors import ConfigurationError
from semlex.evaluation.datasets import MAX_RELEVANCE, JudgementFolder, check_judgements, question_text
from semlex.options.declare import Rights
from semlex.server.addresses import PLACE
from semlex.server.problems import Problem, try_later
from semlex.server.request_context import OPERATION, RIGHTS, Current, RequestContext, json_response
from semlex.server.routes.bodies import MAX_IDS, STRICT, CollectionQuery, Id, Name, Question
from semlex.server.routes.jobs import OF_JOBS

FOLDER = Path(__file__).parent.with_name("page")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the web page."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Read every file of the web page, by name."""
    found = {}
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in TYPES:
            content = path.read_bytes()
            found[path.name] = PageFile(content, TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


T = TypeVar("T")

logger = logging.getLogger("semlex.server")
router = APIRouter(tags=["page"], include_in_schema=False)

# Everything from this server alone; no script or style within a page, no text that is read as HTML, in no frame.
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Kept, and asked for again each time: a newer version of the package is seen at once.
    "Cache-Control": "no-cache",
}
WITHOUT_FOLDER = "this server stores no judgements; start it with --judgements FOLDER"


def _does(name: str, rights: Rights) -> dict[str, str]:
    return {OPERATION: name, RIGHTS: rights}


class JudgementBody(BaseModel):
    """Judgements of the hits for a question."""

    model_config = STRICT

    collection: Name | None = None
    question: Question
    judgements: dict[Id, Annotated[int, Field(ge=0, le=MAX_RELEVANCE)] | None] = Field(min_length=1, max_length=MAX_IDS)


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """Return the web page."""
    return _file(request, "index.html")


@router.get(PLACE + "{file}")
async def page_file(request: Request, file: str) -> Response:
    """Return a file of the web page."""
    return _file(request, file)


def _file(request: Request, name: str) -> Response:
    found = page_files().get(name)
    if found is None:
        raise Problem(404, "the page has no such file")
    headers = {**HEADERS, "ETag": found.etag}
    if found.etag in (one.strip() for one in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.media_type)


@router.get("/v1/page", openapi_extra=_does("about page", "read"))
async def about(context: Current) -> Response:
    """Return the page's collection if the caller may see it, whether judgements are stored, and allowed job kinds."""
    collection = context.default
    folder = context.state.options.judgements
    stores = folder is not None and context.caller.may("write")
    opened = collection if context.caller.sees(collection) else None
    changes = [kind for kind, needed in OF_JOBS.items() if context.caller.may(needed)]
    return json_response({"collection": opened, "stores": stores, "changes": changes})


@router.get("/v1/judgements", openapi_extra=_does("judgements", "read"))
async def judgements(context: Current, question: Question, collection: CollectionQuery = None) -> Response:
    """Return the judgements for a question, and how many questions are judged."""
    folder = _folder(context, collection)
    found = await _in_thread(folder.read)
    judged = found.get(question_text(question), {})
    return json_response({"judgements": judged, "questions": len(found), "folder": _shown(context, folder)})


@router.post("/v1/judgements", openapi_extra=_does("judge", "write"))
async def judge(context: Current, body: JudgementBody) -> Response:
    """Store judgements for a question."""
    folder = _folder(context, body.collection)
    try:
        check_judgements(body.question, body.judgements)
    except ConfigurationError as error:
        raise Problem(422, str(error)) from None

    def note() -> tuple[dict[str, int], int]:
        with context.state.judging:
            return folder.note(body.question, body.judgements), len(folder.read())

    kept, questions = await _in_thread(note)
    return json_response({"judgements": kept, "questions": questions, "folder": _shown(context, folder)})


async def _in_thread(work: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(work)
    except ConfigurationError as error:
        logger.warning("judgements: %s", error)
        detail = "the judgements cannot be read or written; see the server's log"
        raise try_later(detail, kind="judgements", seconds=5) from None


def _shown(context: RequestContext, folder: JudgementFolder) -> str | None:
    """Return the folder's path to callers that may write, who need it for a command; None to others."""
    return str(folder.path) if context.caller.may("write") else None


def _folder(context: RequestContext, collection: str | None) -> JudgementFolder:
    """Return the folder with the judgements of a collection; each collection has its own, since ids may repeat."""
    chosen = context.chosen(collection)
    root = context.state.options.judgements
    if root is None:
        raise Problem(409, WITHOUT_FOLDER)
    return JudgementFolder(root / chosen)
