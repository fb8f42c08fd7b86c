"""Text from elsewhere, made fit to be shown on a terminal."""


def harmless(line: str) -> str:
    """A line without what would steer a terminal: recordings have names, and names may be anything.

    >>> harmless("a" + chr(27) + "[31mb")
    'a�[31mb'
    """
    return "".join(char if char.isprintable() or char == "\t" else "�" for char in line)
