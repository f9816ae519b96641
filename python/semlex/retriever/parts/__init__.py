"""What a collection does, a part a file; `Collection` has them all."""
