"""What a change is and how it is undone: steps, journal, lease, snapshot, wire format."""
