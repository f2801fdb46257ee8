"""``pallas schema``: the JSON Schema of agents.yaml, for editors."""

from pallas.config.json_schema import schema_text


def schema() -> int:
    """Print the schema on stdout; returns the exit status."""
    print(schema_text(), end="")
    return 0
