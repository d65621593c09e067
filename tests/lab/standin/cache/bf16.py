NAME = "bf16"
