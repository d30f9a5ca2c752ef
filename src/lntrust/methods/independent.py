"""Independent learning: every node trains on its own labels and answers by itself.

Exchanged: nothing, 0 bytes. The yardstick for every other method.
"""

from lntrust.methods.base import Method


class Independent(Method):
    about = "every node trains and answers alone"
