"""Neighbours: asking them (`neighbours`) and answering them (`query_handler`)."""

from lntrust.fleet import need_extra

need_extra()
