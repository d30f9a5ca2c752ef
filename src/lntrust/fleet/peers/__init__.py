"""Neighbours: asking them (`neighbours`) and answering them (`query_handler`)."""
