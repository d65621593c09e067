"""A fleet on this machine: hosts with a real sshd, and real systemd where permitted."""
