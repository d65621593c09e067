NAME = "persistent_logits"
