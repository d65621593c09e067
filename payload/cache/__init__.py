"""Paged caches: index keys and KV, in one contract (`contract.py`).

`bf16` and `fp8` differ in how index keys are kept; `guarded` watches for stray writes.
"""
