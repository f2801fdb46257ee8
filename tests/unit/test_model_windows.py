"""How many tokens a model takes in at once: as the agent library knows it, and as an agent declares."""

import pytest

from pallas.config import Capabilities
from pallas.executors.fastagent.model_registry import window


@pytest.mark.parametrize(
    ("model", "declared", "expected"),
    [
        ("claude-sonnet-4-5", None, 200_000),
        ("claude-sonnet-4-5", Capabilities(vision=True), 200_000),
        ("claude-sonnet-4-5", Capabilities(context_window=50_000), 50_000),
        ("claude-sonnet-4-5", Capabilities(context_window=900_000), 200_000),
        ("nobody-knows-this-one", None, 131_072),
        ("nobody-knows-this-one", Capabilities(context_window=9_000), 9_000),
        ("", Capabilities(context_window=9_000), 9_000),
    ],
)
def test_the_window_of_a_model(model: str, declared: Capabilities | None, expected: int) -> None:
    assert window(model, declared) == expected
