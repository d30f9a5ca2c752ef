"""Finished runs side by side: tables here, pictures in `figures`, one page to look at in `page`."""

from lntrust.report.certificate import certificate_table
from lntrust.report.rows import Row, rows_of
from lntrust.report.run_tables import results_table, trust_table
from lntrust.report.sections import Section, arrow, sections_of, sections_of_one
from lntrust.report.text import latex, markdown, terminal

__all__ = [
    "Row", "Section", "arrow", "certificate_table", "latex", "markdown", "results_table", "rows_of",
    "sections_of", "sections_of_one", "terminal", "trust_table",
]  # fmt: skip
