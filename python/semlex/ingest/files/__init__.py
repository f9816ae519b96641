"""Files below a folder and nowhere else, and the source that they belong to."""
