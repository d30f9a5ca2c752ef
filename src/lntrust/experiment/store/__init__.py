"""Run folders: what they are named by, what they hold, and how they are read."""
