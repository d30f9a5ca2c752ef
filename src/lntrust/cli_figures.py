"""`lntrust figures`."""


def figures() -> None:
    """Being written."""
