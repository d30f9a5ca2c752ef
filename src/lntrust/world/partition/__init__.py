"""Who holds which examples: sizes, splits, places, people."""

from lntrust.world.partition.partition import Partition, groups, make_partition
from lntrust.world.partition.splits import class_table

__all__ = ["Partition", "class_table", "groups", "make_partition"]
