"""A file as text, one format a file."""
