"""The commands about single documents: read, their headings, added."""
