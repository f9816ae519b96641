"""What needs a person at a terminal: places opened in an editor, names completed, the shell."""
