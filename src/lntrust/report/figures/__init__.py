"""Figures for a paper."""
