"""The half of fleetctl that runs on the host: standard library only, Python 3.8 or newer."""
