"""Runs as one HTML page that needs nothing but itself."""

from lntrust.report.page.write import write_page

__all__ = ["write_page"]
