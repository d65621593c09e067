"""The served model seen from outside: client, load, readiness, proofs."""
