"""The operation of a migration that follows a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.migrations.operations.base import Operation

from semlex.integrations.django.clients import collection_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.db.backends.base.schema import BaseDatabaseSchemaEditor
    from django.db.migrations.state import ProjectState
    from django.db.models import Model

    from semlex.types.followed import Changes


class FollowTable(Operation):
    """Follows a model's table; reversing the migration stops following it and deletes the documents of its rows.

    Args:
        model_name: Name of the model, in the migration's application.
        collection: Name of the collection, which is made if it does not exist.
        name: Name of the followed table in the collection. Default: the name of the model's table.
        text, key, heading, formats, metadata, live, changes, updated_at, overlap, keys_every, schema: As for
            `Tables.follow`. Names of fields mean their columns: ``text=["title", "body"]``.
    """

    reversible = True
    reduces_to_sql = False

    # Each option is named here, because the file of a migration has those that are.
    def __init__(
        self,
        model_name: str,
        collection: str,
        name: str | None = None,
        *,
        text: str | Sequence[str],
        key: str | Sequence[str] | None = None,
        heading: str | None = None,
        formats: Mapping[str, str] | None = None,
        metadata: Sequence[str] | None = None,
        live: Sequence[str] | None = None,
        changes: Changes | None = None,
        updated_at: str | None = None,
        overlap: float | None = None,
        keys_every: float | None = None,
        schema: str | None = None,
    ) -> None:
        self.model_name, self.collection, self.name = model_name, collection, name
        given: dict[str, Any] = {"text": text, "key": key, "heading": heading, "formats": formats, "live": live}
        given |= {"metadata": metadata, "changes": changes, "updated_at": updated_at, "schema": schema}
        given |= {"overlap": overlap, "keys_every": keys_every}
        self.options = {name: value for name, value in given.items() if value is not None}

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return name and arguments from which Django writes this operation into a migration file."""
        named = {} if self.name is None else {"name": self.name}
        return type(self).__qualname__, [self.model_name, self.collection], {**named, **self.options}

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Do nothing: the operation does not change models."""

    def database_forwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,  # noqa: ARG002 - of Django's interface
        to_state: ProjectState,
    ) -> None:
        """Follow the table, in the transaction of the migration."""
        model = to_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            options = {name: _columns(model, value) for name, value in self.options.items()}
            table = model._meta.db_table  # noqa: SLF001 - Django's documented interface
            self._tables(schema_editor).follow(table, name=self.name, **options)

    def database_backwards(
        self,
        app_label: str,
        schema_editor: BaseDatabaseSchemaEditor,
        from_state: ProjectState,
        to_state: ProjectState,  # noqa: ARG002 - of Django's interface
    ) -> None:
        """Stop following the table."""
        model = from_state.apps.get_model(app_label, self.model_name)
        if self.allow_migrate_model(schema_editor.connection.alias, model):
            self._tables(schema_editor).stop(self.name or model._meta.db_table)  # noqa: SLF001

    def _tables(self, schema_editor: BaseDatabaseSchemaEditor) -> Any:
        connection = schema_editor.connection
        return collection_of(self.collection, connection.alias).using(connection).tables

    def describe(self) -> str:
        """Return the line that ``migrate --plan`` shows for this operation."""
        return f"Follow the table of {self.model_name} in the collection {self.collection}"

    @property
    def migration_name_fragment(self) -> str:
        """Return this operation's part of a migration file's name."""
        return f"follow_{self.model_name.lower()}"


def _columns(model: type[Model], given: Any) -> Any:
    """Replace names of fields by their columns; return other values unchanged."""
    columns = {}
    for field in model._meta.concrete_fields:  # noqa: SLF001 - Django's documented interface
        columns[field.name] = columns[field.attname] = field.column
    if isinstance(given, str):
        return columns.get(given, given)
    if isinstance(given, (list, tuple)):
        return [columns.get(one, one) for one in given]
    if isinstance(given, dict):
        return {columns.get(name, name): value for name, value in given.items()}
    return given
