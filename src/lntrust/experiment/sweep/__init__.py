"""Sweeps: the plan, and who carries it out."""
