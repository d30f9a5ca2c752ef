"""The only door between nodes. It counts every byte."""

from lntrust.network.codec import Message, Size, decode, encode, size
from lntrust.network.encodings import ENCODINGS, ReplyEncoding
from lntrust.network.ledger import Ledger
from lntrust.network.neighbourhood import Neighbourhood
from lntrust.network.network import Network, WireFormat
from lntrust.network.questions import Questions, Replies, Route, Source

__all__ = [
    "ENCODINGS", "Ledger", "Message", "Neighbourhood", "Network", "Questions", "Replies", "ReplyEncoding",
    "Route", "Size", "Source", "WireFormat", "decode", "encode", "size",
]  # fmt: skip
