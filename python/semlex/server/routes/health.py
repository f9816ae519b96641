"""Routes for the state of the process: liveness, readiness, metrics, and the API description."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from semlex.errors import SemlexError
from semlex.server.observability import METRICS_MEDIA_TYPE
from semlex.server.request_context import Current, json_response, route

logger = logging.getLogger("semlex.server")
router = APIRouter(tags=["health"])

# Probes of service managers wait for a second: with what the store adds to a deadline, `/readyz` answers within it.
DATABASE_SECONDS = 0.7


@router.api_route("/healthz", methods=["GET", "HEAD"], include_in_schema=False)
async def healthz() -> Response:
    """Return whether the process is running."""
    return json_response({"status": "ok"})


@router.api_route("/readyz", methods=["GET", "HEAD"], include_in_schema=False)
async def readyz(request: Request) -> Response:
    """Return whether the database answers and has its extension, and whether the current settings files are in use."""
    state = request.app.state.server
    health = await request.scope["state"]["open_client"].client.health_check(deadline=DATABASE_SECONDS)
    answers = health.postgres is not None
    checks = {
        "database": "ok" if answers else "it does not answer; see the log",
        "extension": f"pgvector {health.pgvector}" if health.pgvector else "pgvector is missing",
        "settings": "the changed settings were refused, the old ones are in use; see the log"
        if state.problems
        else "ok",
        "models": state.open_client.readiness,
    }
    if state.options.jobs:
        checks["jobs"] = state.jobs_readiness
    if not answers:
        checks |= dict.fromkeys(checks.keys() & {"extension", "jobs"}, "not checked: the database does not answer")
        logger.warning("the database is not ready: %s", health.error)
    is_ready = health.ok and not state.is_stopping
    return json_response({"status": "ready" if is_ready else "not ready", "checks": checks}, 200 if is_ready else 503)


@route(router, "GET", "/metrics", "metrics", rights="read", media={"text/plain": {"type": "string"}})
async def figures(context: Current) -> Response:
    """Return the metrics in the text format of Prometheus."""
    jobs = None
    if context.caller.collections is None:  # they are those of all collections
        with suppress(SemlexError):  # the other figures are there while the database is away
            jobs = await context.client.count_jobs(deadline=DATABASE_SECONDS)
    gauges = {f"pool_{name}": float(value) for name, value in (await context.client.pool_figures()).items()}
    return Response(context.state.metrics.text(gauges, jobs), media_type=METRICS_MEDIA_TYPE)


@route(router, "GET", "/openapi.json", "openapi", returns=dict[str, Any], rights="read")
async def description(context: Current, request: Request) -> Response:
    """Return the API description as OpenAPI."""
    del context
    return json_response(request.app.openapi())
