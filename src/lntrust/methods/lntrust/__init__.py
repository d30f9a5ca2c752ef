"""LNTrust: the method, its settings and presets, and what its runs report."""

from lntrust.methods.lntrust.method import LNTrust

__all__ = ["LNTrust"]
