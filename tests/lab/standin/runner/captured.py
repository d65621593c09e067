NAME = "captured"
