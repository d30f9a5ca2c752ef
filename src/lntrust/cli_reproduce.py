"""`lntrust reproduce`."""


def reproduce() -> None:
    """Being written."""
