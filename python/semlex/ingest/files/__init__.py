"""Find and open files below a folder, and the sources they belong to."""
