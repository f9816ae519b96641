"""The statements in a part of a source, without the expressions in them, which are ten times as many nodes."""


def statements(of):
    left = [of]
    for node in left:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, name, ())
