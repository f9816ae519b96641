"""Ingest: read files, split their text into chunks, embed the chunks and store them as rows."""
