"""A measured figure beside its aim."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """``value`` is a ratio unless ``unit`` says otherwise; ``aim`` is the most it should be."""

    name: str
    value: float
    aim: float
    unit: str = "x"
    detail: str = ""

    @property
    def good(self) -> bool:
        """Whether the aim is met."""
        return self.value <= self.aim

    def row(self) -> str:
        """One line of the table that is printed."""
        mark = "ok  " if self.good else "MISS"
        return f"{mark} {self.name:<45} {self.value:7.2f} {self.unit:<2} (aim <= {self.aim:g})  {self.detail}"
