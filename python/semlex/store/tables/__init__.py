"""Whole tables of a collection: what a dump is made of, and what a restore writes."""
