"""Keep collections in step with folders: compare, synchronise, watch."""
