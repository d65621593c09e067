"""Commands: the one place that builds the edges, prints, and turns errors into exit codes."""
