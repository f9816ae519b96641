"""Files below a folder, and the sources they belong to."""
