"""A meter for tests: what was counted since it was put in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["Sums"]


class Sums:
    """The sums by name and labels; of histograms, of their seconds."""

    def __init__(self) -> None:
        self._sums: Counter[tuple[str, ...]] = Counter()
        self.gauges: dict[tuple[str, ...], float] = {}

    def add(self, name: str, labels: Sequence[str], amount: float) -> None:
        self._sums[name, *labels] += amount  # type: ignore[assignment] # a float too

    def add_times(
        self, name: str, labels: Sequence[str], counts: Sequence[int], seconds: float
    ) -> None:
        self.add(name, labels, seconds)

    def put(self, name: str, labels: Sequence[str], value: float) -> None:
        self.gauges[name, *labels] = value

    def forget_process(self, pid: int) -> None:
        pass

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        return {key[1:]: value for key, value in self._sums.items() if key[0] == name}
