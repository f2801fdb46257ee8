"""The servers of the peers. Each module runs in its peer's own environment and imports nothing of Pallas."""

INSTRUCTION = "Answer in words. " * 50
"""What every agent is told."""
