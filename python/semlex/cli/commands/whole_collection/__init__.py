"""The commands on a whole collection."""
