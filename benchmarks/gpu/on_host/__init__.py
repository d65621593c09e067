"""`fleetctl matrix` on a machine that has a GPU, but no sshd and no network."""
