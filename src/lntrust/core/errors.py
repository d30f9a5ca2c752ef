"""The one exception a user of lntrust has to know."""


class LNTrustError(Exception):
    """Input that cannot be used. The message names the field or file, the value, and what would do.

    The command line prints the message alone and exits with code 2.
    """


class CannotStackError(LNTrustError):
    """Seeds that cannot stand side by side in one stack, but can be run one by one."""
