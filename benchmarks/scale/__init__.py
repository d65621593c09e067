"""What a fleet of a thousand hosts costs: database, one trial's load, and a simulation."""
