"""The Redis side of the core: one module owns one family of keys, and nobody else reads or writes it."""
