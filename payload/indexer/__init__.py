"""Score keys, pick the top k: one contract (`contract.py`), a plain reference, and variants.

`transient` allocates its buffers per call, `persistent_logits` keeps the scores' buffer,
`persistent_all` keeps every buffer, `eager` leaves the graph.
"""
