"""What a live node does by itself: it learns, probes and trusts."""
