"""Neighbours: who they are, what is said to them, and what is answered."""
