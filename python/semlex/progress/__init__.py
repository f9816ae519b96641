"""How far long work has come, shown: bars on a terminal, a table in a notebook, lines in a log."""
