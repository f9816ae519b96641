"""Settings, addresses and commands of the project."""

import json
import os
import sys
from typing import Any

from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from psycopg.conninfo import conninfo_to_dict

address = conninfo_to_dict(os.environ["DATABASE_URL"])  # postgresql://semlex:semlex@127.0.0.1:5432/semlex
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": address["dbname"],
        "USER": address.get("user", ""),
        "PASSWORD": address.get("password", ""),
        "HOST": address.get("host", ""),
        "PORT": address.get("port", ""),
    }
}
INSTALLED_APPS = ["semlex.integrations.django", "shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "change me"  # noqa: S105 - of an example
DEBUG, ALLOWED_HOSTS, ROOT_URLCONF, USE_TZ = True, ["*"], "manage", True


def add(request: HttpRequest) -> HttpResponse:
    from shop.models import Article

    Article.objects.create(**json.loads(request.body))
    return HttpResponse(status=201)


def search(request: HttpRequest) -> JsonResponse:
    from shop.models import Article

    found = Article.search.query(request.GET["q"]).filter(status="public")[:10]
    rows: list[dict[str, Any]] = [{"id": one.pk, "title": one.title, "excerpt": one.hit.excerpt} for one in found]
    return JsonResponse(rows, safe=False)


urlpatterns = [path("articles", add), path("search", search)]

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "manage")
    execute_from_command_line(sys.argv)
