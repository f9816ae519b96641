"""Sync the tables that a collection follows: find changed rows, and store them as documents."""
