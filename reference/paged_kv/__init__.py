"""CS110 Homework 3: a paged KV-cache memory manager with two-level block tables and copy-on-write."""

from reference.paged_kv.engine import Engine, llm_init
from reference.paged_kv.generate import generate
from reference.paged_kv.oracle import PagedKV

__all__ = ["Engine", "PagedKV", "generate", "llm_init"]
