"""How a host is reached: the Transport protocol, its back ends, and the agent's client."""
