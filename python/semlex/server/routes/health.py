"""Whether the process lives, whether it can answer, its figures, and the description of its routes."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from semlex.server import metrics
from semlex.server.asked import Ask, answered, does

router = APIRouter(tags=["health"])


@router.get("/healthz", include_in_schema=False)
async def healthz() -> Response:
    """Whether the process lives."""
    return answered({"status": "ok"})


@router.get("/readyz", include_in_schema=False)
async def readyz(request: Request) -> Response:
    """Whether the database answers, has its extension, and the settings are those that the files say."""
    state = request.app.state.server
    health = await request.scope["state"]["lease"].client.health_check()
    checks = {
        "database": "ok" if health.postgres is not None else "it does not answer; see the log",
        "extension": f"pgvector {health.pgvector}" if health.pgvector else "pgvector is missing",
        "settings": "the changed settings are refused, the old ones serve; see the log" if state.problems else "ok",
        "models": state.lease.readiness,
    }
    if state.options.jobs:
        checks["jobs"] = state.jobs_readiness
    is_ready = health.ok and not state.is_stopping
    return answered({"status": "ready" if is_ready else "not ready", "checks": checks}, 200 if is_ready else 503)


@does(router, "GET", "/metrics", "metrics", rights="read", answer={"text/plain": {"schema": {"type": "string"}}})
async def figures(asked: Ask) -> Response:
    """Figures in the text format of Prometheus."""
    return Response(asked.state.metrics.text(await asked.state.gauges()), media_type=metrics.MEDIA_TYPE)


@does(router, "GET", "/openapi.json", "openapi", rights="read")
async def description(asked: Ask, request: Request) -> Response:
    """The routes as OpenAPI."""
    del asked
    return answered(request.app.openapi())
