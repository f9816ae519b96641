"""A folder and a collection in step: what is different, done in the collection, again and again."""
