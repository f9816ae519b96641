"""The commands of the command line, as they are registered."""

from docs.generate.command_line import MAIN, tree


def is_group(command):
    """Whether further words name commands below it."""
    return hasattr(command, "commands")


TREE = tree(MAIN)
RUNNABLE = {name: one for name, one in TREE.items() if not is_group(one)}


def options_of(command):
    """The options of a command under all their names."""
    return {option for one in command.params for option in (*one.opts, *one.secondary_opts)}


def parted(words):
    """The name of the command that the words after ``semlex`` begin with ("" without one), and the rest of them."""
    depth = max((count for count in (1, 2, 3) if " ".join(words[:count]) in TREE), default=0)
    name, rest = " ".join(words[:depth]), words[depth:]
    default = getattr(TREE.get(name), "default", None)
    # `semlex eval DIR` is `semlex eval run DIR`.
    return (f"{name} {default}", rest) if default and rest[:1] != ["COMMAND"] else (name, rest)
