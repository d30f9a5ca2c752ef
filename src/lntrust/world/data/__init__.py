"""Datasets: what examples there are, where they come from, and how each kind of learner sees them."""
