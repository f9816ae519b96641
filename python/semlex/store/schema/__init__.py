"""Tables of the schema, their names, locks and migrations."""
