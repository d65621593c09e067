"""What the user wrote: TOML in, frozen values out, every error located."""
