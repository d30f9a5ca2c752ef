"""Neighbours: asking them and answering them.

`neighbours` (whom to ask, deadline, retries) sends one of the `messages` through `transport` to the other
node's `query_handler`, which answers with a model of its `snapshots`. An `inference_server` is a neighbour
that is no node. `limits` has quotas and breakers, `traffic` counts, and `zenoh_config` says who may
send what to whom.
"""
