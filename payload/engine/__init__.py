"""A small decode server whose right answers are known.

Read it in this order: config, sequence, scheduler, model, engine, server.
"""
