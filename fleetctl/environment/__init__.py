"""Where a service's flags come from, and exact edits of scripts, units and env files."""
