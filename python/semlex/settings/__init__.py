"""Settings: their declarations, the files and variables that set them, and the values in force."""
