"""`lntrust compare` and `lntrust collect`."""


def compare() -> None:
    """Being written."""


def collect() -> None:
    """Being written."""
