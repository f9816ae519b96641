"""Work on a whole collection: dumps, another model, indexes."""
