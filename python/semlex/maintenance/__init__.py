"""Work on a whole collection: dumped and restored."""
