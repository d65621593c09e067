"""Workloads, sessions, and what their transcripts mean."""
