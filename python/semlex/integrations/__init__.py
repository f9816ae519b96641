"""semlex in other frameworks: thin adapter classes, each in a module that is imported only when used."""
