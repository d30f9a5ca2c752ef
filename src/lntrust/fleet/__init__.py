"""Live nodes on a real network. Needs the extra `fleet`."""
