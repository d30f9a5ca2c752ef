"""Section 4 of the paper as small pure functions, a file a step.

evidence → features → weights (fitted by fit) → gates → blend, the deployed answer; distil has the targets,
the confidence filter and the losses; rivals are other ways to weigh, bounds the theory.

Shapes: n nodes; D the largest closed neighbourhood, so that members are `[n, D]` with a mask (column 0 is
the node itself); T all validation examples, sorted by owner; C classes; B examples of a distillation batch.
"""
