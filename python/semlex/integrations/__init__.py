"""semlex in other frameworks: thin classes of theirs, each in a module that is imported when it is used."""
