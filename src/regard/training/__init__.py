"""Training: examples on disk, in which order they come, and what is learned from them."""

__all__: list[str] = []
