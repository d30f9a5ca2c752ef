"""The door for clients: the Open Inference Protocol v2 over HTTP."""

from lntrust.fleet import need_extra

need_extra()
