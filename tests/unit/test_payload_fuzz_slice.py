"""A small slice of ``make fuzz`` with every run of the tests."""

import pytest
from fuzz import fuzz_xml


@pytest.mark.slow
def test_broken_xml_is_refused_and_nothing_else() -> None:
    # HC-24
    said: list[str] = []

    counts = fuzz_xml.run(2_000, seed=11, out=said.append)

    assert said == []
    assert counts["crash"] == counts["hang"] == 0
    # It is no proof where all is refused, or all is taken, at one of the doors.
    assert all(
        counts[f"{what}:{entry}"] > 100
        for what in ("taken", "refused")
        for entry in ("parse", "read", "elements_of")
    )
