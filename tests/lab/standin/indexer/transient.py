NAME = "transient"
