NAME = "fp8"
