"""Runs: one study, one method, one seed, driven the same way for every method."""

from lntrust.experiment.run import Run, run

__all__ = ["Run", "run"]
