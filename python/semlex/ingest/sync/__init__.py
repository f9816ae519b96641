"""Folders and collections in step: compared, synchronised, watched."""
