"""Operations on a whole collection: dump and restore, change of the embedding model, indexes."""
