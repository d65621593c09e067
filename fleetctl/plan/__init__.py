"""Desired state x observed state -> Plan, as data."""
