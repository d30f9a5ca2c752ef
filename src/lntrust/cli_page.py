"""`lntrust report`."""


def report() -> None:
    """Being written."""
