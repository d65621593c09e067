"""A run's folder: append-only events, transcripts, artefacts, and the index over runs."""
