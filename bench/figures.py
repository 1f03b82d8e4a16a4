"""Rounds, interleaved, and the rows of the table that come of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median, quantiles
from typing import Any

from bench.rig import progress

__all__ = ["figure", "interleave", "percentile", "row"]


def interleave(
    title: str, rounds: int, cases: Mapping[str, Callable[[], float]], unit: str = "/s"
) -> dict[str, list[float]]:
    """Run every case once per round, in turn; return each case's figures."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(1, rounds + 1):
        for name, case in cases.items():
            progress(f"{title}, round {number} of {rounds}: {name} … ")
            found[name].append(case())
            progress(f"{found[name][-1]:,.6g}{unit}\n")
    return found


def figure(each: Sequence[float]) -> dict[str, Any]:
    """Return the median of the rounds, with its range and their middle half."""
    low, _, high = quantiles(each, n=4) if len(each) > 1 else (each[0],) * 3
    return {
        "median": median(each),
        "min": min(each),
        "max": max(each),
        "quartiles": [low, high],
        "each": list(each),
    }


def row(
    work: str,
    unit: str,
    relay: Sequence[float],
    *,
    ceiling: tuple[str, Sequence[float]] | None = None,
    rivals: Mapping[str, Sequence[float]] | None = None,
    is_less_better: bool = False,
) -> dict[str, Any]:
    """Return one row of the table.

    The ratios are medians of the rounds' own: relay by the other, in the same round.

    Args:
        ceiling: what relay is held against, and its name: raw statements, or relay
            itself under better conditions.
    """
    others = {name: each for name, each in (rivals or {}).items() if each}
    choose = min if is_less_better else max
    best = choose(others, key=lambda name: median(others[name]), default=None)
    made: dict[str, Any] = {
        "work": work,
        "unit": unit,
        "is_less_better": is_less_better,
        "relay": figure(relay),
    }
    if ceiling is not None:
        name, each = ceiling
        made["ceiling"] = {"name": name, **figure(each), "ratio": _ratio(relay, each)}
    made["rivals"] = {
        name: {**figure(each), "ratio": _ratio(relay, each)}
        for name, each in others.items()
    }
    made["best_rival"] = best
    return made


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that so many of a hundred do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    return figure([our / their for our, their in zip(ours, theirs, strict=True)])
