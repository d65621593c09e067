"""Score index keys and pick the top-k tokens a row attends to."""
