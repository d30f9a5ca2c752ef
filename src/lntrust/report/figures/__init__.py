"""Figures for a paper."""

from lntrust.report.figures.choose import all_figures, draw, named_figures, save
from lntrust.report.figures.graphs import draw_topology

__all__ = ["all_figures", "draw", "draw_topology", "named_figures", "save"]
