"""Whose data: sizes, splits, regions, people."""
