"""semlex in other frameworks: thin classes of theirs, each in a module that is imported only when it is asked for."""
