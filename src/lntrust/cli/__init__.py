"""The command line; it holds no logic of its own."""

from lntrust.cli.app import app, main

__all__ = ["app", "main"]
