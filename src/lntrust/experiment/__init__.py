"""Runs: one study, one method, one seed, driven the same way for every method."""

from lntrust.experiment.driver import Run, Runs, run

__all__ = ["Run", "Runs", "run"]
