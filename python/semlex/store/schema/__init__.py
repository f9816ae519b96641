"""The schema: its tables, their names, locks and migrations."""
