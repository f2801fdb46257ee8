"""A measured figure beside its aim."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """``value`` is a ratio unless ``unit`` says otherwise.

    ``aim`` is the most it should be, with ``least`` the least; None where none was set.
    """

    name: str
    value: float
    aim: float | None
    unit: str = "x"
    detail: str = ""
    least: bool = False

    @property
    def good(self) -> bool:
        """Whether the aim is met, or there is none."""
        if self.aim is None:
            return True
        return self.value >= self.aim if self.least else self.value <= self.aim

    def row(self) -> str:
        """One line of the table that is printed."""
        mark = "    " if self.aim is None else "ok  " if self.good else "MISS"
        aim = "" if self.aim is None else f"(aim {'>=' if self.least else '<='} {self.aim:g})"
        return f"{mark} {self.name:<52} {self.value:7.2f} {self.unit:<3} {aim:<13} {self.detail}"
