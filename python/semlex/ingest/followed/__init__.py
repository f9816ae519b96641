"""Rows of tables that a collection follows."""
