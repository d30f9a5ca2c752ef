"""The demonstration of a fleet: `python -m examples.fleet_demo`."""
