"""Tenants on a server: a login that has no right of its own, and roles that it may take.

A tenant has a schema that its owner role makes everything in, and a reader role that may select there. Nothing here is
done by a superuser but what makes the roles.
"""

import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field

from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from semlex.retriever.client import Client
from semlex.testing import HashEmbedder
from tests.support.databases import execute


@dataclass(frozen=True)
class Tenant:
    name: str  # of its schema, too
    owner: str  # the role that owns the schema and all in it
    reader: str  # the role that may read it
    word: str  # in every document of it, and in none of another's


@dataclass
class Tenants:
    administrator: str  # address of a superuser, for making roles and looking
    login: str
    url: str  # of the login
    tenants: dict[str, Tenant] = field(default_factory=dict)  # by name

    def run(self, statement, *names):
        """Runs a statement as the administrator; each ``{}`` is a name."""
        return execute(self.administrator, sql.SQL(statement).format(*map(sql.Identifier, names)))

    def make_role(self, name):
        role = f"{name}_{self.login}"
        self.run("CREATE ROLE {} NOLOGIN", role)
        self.run("GRANT {} TO {}", role, self.login)
        return role

    def make(self, name, word):
        """A tenant by the statements of docs/how-to/tenants.md."""
        tenant = Tenant(name, self.make_role(f"{name}_owner"), self.make_role(f"{name}_reader"), word)
        self.run("CREATE SCHEMA {} AUTHORIZATION {}", name, tenant.owner)
        self.run("GRANT USAGE ON SCHEMA {} TO {}", name, tenant.reader)
        select = "ALTER DEFAULT PRIVILEGES FOR ROLE {} IN SCHEMA {} GRANT SELECT ON TABLES TO {}"
        self.run(select, tenant.owner, name, tenant.reader)
        self.tenants[name] = tenant
        return tenant

    def client(self, url=None, **options):
        """A client of the login, through its address unless another or a pool is given."""
        address = None if "pool" in options else url or self.url
        return Client(address, HashEmbedder(16), use_reranking=False, **options)


@contextmanager
def tenants_of(database_url):
    """A login in a database, without tenants yet; all roles are gone afterwards."""
    login = f"app_{uuid.uuid4().hex[:10]}"
    one = Tenants(database_url, login, make_conninfo(database_url, user=login))
    assert "password" not in conninfo_to_dict(database_url)
    one.run("CREATE ROLE {} LOGIN NOINHERIT", login)
    try:
        yield one
    finally:
        for (role,) in execute(database_url, "SELECT rolname FROM pg_roles WHERE rolname LIKE %s", [f"%{login}"]):
            one.run("DROP OWNED BY {} CASCADE; DROP ROLE {}", role, role)
