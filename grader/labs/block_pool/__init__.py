"""The block pool assignment: a prefix-caching KV-cache manager in Python."""
