"""The commands of the command line, as they are registered."""

from contextvars import copy_context

from docs.generate.command_line import MAIN, tree


def is_group(command):
    return hasattr(command, "commands")


TREE = tree(MAIN)
# A command keeps the help option that it made first: without these names, later tests of the process had no -h.
NAMES_OF_HELP = {"help_option_names": ["-h", "--help"]}
RUNNABLE = {name: one for name, one in TREE.items() if not is_group(one)}


def options_of(command):
    return {option for one in command.params for option in (*one.opts, *one.secondary_opts)}


def parted(words):
    """The name of the command that the words after ``semlex`` begin with ("" without one), and the rest of them."""
    depth = max((count for count in (1, 2, 3) if " ".join(words[:count]) in TREE), default=0)
    name, rest = " ".join(words[:depth]), words[depth:]
    default = getattr(TREE.get(name), "default", None)
    # `semlex eval DIR` is `semlex eval run DIR`.
    return (f"{name} {default}", rest) if default and rest[:1] != ["COMMAND"] else (name, rest)


def parse(name, words):
    """Parses words with a command, in a context of its own."""
    copy_context().run(TREE[name].make_context, name, words, **NAMES_OF_HELP)
