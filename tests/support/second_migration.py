"""A second migration, as a later version of semlex would bring one."""

from psycopg import sql

from semlex.store.schema import migrations


def registry(schema):
    return (sql.SQL("ALTER TABLE {} ADD COLUMN colour text").format(sql.Identifier(schema, "collection")),)


def collection(names):
    """Changes two tables, so that a migration can be met between them."""
    return (
        sql.SQL("ALTER TABLE {} ADD COLUMN colour text").format(names.source),
        sql.SQL("ALTER TABLE {} ADD COLUMN colour text NOT NULL DEFAULT 'red'").format(names.chunk),
    )


def install(set_attribute=setattr):
    """Makes this process one of the later version; tests give `MonkeyPatch.setattr`."""
    set_attribute(migrations, "REGISTRY", (*migrations.REGISTRY, registry))
    set_attribute(migrations, "COLLECTION", (*migrations.COLLECTION, collection))
