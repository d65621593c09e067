"""Campaigns of many machines: cells wait in PostgreSQL, and DBOS records each result once."""
