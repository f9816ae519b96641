"""The HTTP routes, each for one operation; `ROUTERS` lists their routers."""

from semlex.server.routes.documents import collections
from semlex.server.routes.documents import router as documents
from semlex.server.routes.health import router as health
from semlex.server.routes.jobs import router as jobs
from semlex.server.routes.models import router as models
from semlex.server.routes.page import router as page
from semlex.server.routes.search import answers
from semlex.server.routes.search import router as search

ROUTERS = (search, answers, documents, collections, jobs, models, health, page)
