"""Shell scripts: what they give their servers, and exact edits of them."""
