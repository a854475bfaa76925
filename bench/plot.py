"""A bar per claim with its target, as SVG written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.measure import Result

_WIDTH, _LEFT, _ROW, _BAR = 820, 400, 34, 16
_MET, _MISSED, _TEXT, _LINE = "#2f855a", "#c05621", "#1a202c", "#718096"


def bars(title: str, results: Sequence[Result]) -> str:
    """Each bar ends at the ratio, the dark tick is the target, the thin line the middle half of the rounds."""
    height = 40 + _ROW * len(results)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12" fill="{_TEXT}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-weight="bold">{escape(title)}</text>',
        *(_bar(result, 36 + _ROW * number) for number, result in enumerate(results)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _bar(result: Result, top: int) -> str:
    wanted = result.ratio if result.target is None else result.target
    scale = (_WIDTH - _LEFT - 90) / max(result.ratio, wanted, result.spread[1])
    ratio, target = _LEFT + result.ratio * scale, _LEFT + wanted * scale
    low, high = (_LEFT + value * scale for value in result.spread)
    middle = top + _BAR / 2
    return (
        f'<text x="8" y="{top + 12}">{escape(result.claim)}</text>'
        f'<rect x="{_LEFT}" y="{top}" width="{ratio - _LEFT:.1f}" height="{_BAR}" '
        f'fill="{_MET if result.met else _MISSED}"/>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="{_LINE}" stroke-width="2"/>'
        f'<line x1="{target:.1f}" x2="{target:.1f}" y1="{top - 3}" y2="{top + _BAR + 3}" stroke="{_TEXT}" '
        'stroke-width="2"/>'
        f'<text x="{max(ratio, target, high) + 8:.1f}" y="{top + 12}">{result.ratio:.2f}</text>'
    )
