"""Keeps what it learns in an object that outlives the execution of its module."""

import collections

count = collections.OrderedDict.__dict__.get("hostile", [0]) if hasattr(collections, "hostile") else [0]
collections.hostile = count
count[0] += 1
if count[0] % 7 == 0:
    raise ImportError("not now")
