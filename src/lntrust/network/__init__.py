"""The only door between nodes. It counts every byte."""

from lntrust.network.codec import Message, Size, decode, encode, size
from lntrust.network.ledger import Ledger
from lntrust.network.network import Network, WireFormat
from lntrust.network.questions import Questions, Replies

__all__ = [
    "Ledger",
    "Message",
    "Network",
    "Questions",
    "Replies",
    "Size",
    "WireFormat",
    "decode",
    "encode",
    "size",
]
