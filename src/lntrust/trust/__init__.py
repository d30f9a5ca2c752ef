"""Section 4 of the paper as small pure functions on tensors.

Shapes: n nodes; D the largest closed neighbourhood, so that members are `[n, D]` with a mask (column 0 is
the node itself); T all validation examples, sorted by owner; C classes; B examples of a distillation batch.
"""
