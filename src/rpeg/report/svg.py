"""A drawing as self-contained SVG: rectangles, lines, curves, dots and text, all text escaped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, FAINT, PAPER = "#222222", "#d8d8d8", "#ffffff"
COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#b07aa1",
    "#e15759",
    "#76b7b2",
    "#edc948",
    "#9c755f",
    "#ff9da7",
    "#8c8c8c",
)


@dataclass
class Drawing:
    """width, height: in pixels. Later shapes lie on earlier ones."""

    width: float
    height: float
    _shapes: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, colour: str, tip: str = "") -> None:
        """A filled rectangle; `tip` shows when the pointer rests on it."""
        size = f"x='{x:.2f}' y='{y:.2f}' width='{max(width, 0.0):.2f}' height='{height:.2f}'"
        inside = f"<title>{escape(printable(tip))}</title>" if tip else ""
        self._shapes.append(f"<rect {size} fill={quoteattr(colour)}>{inside}</rect>")

    def line(
        self, x1: float, y1: float, x2: float, y2: float, colour: str = FAINT, *, dashes: str = ""
    ) -> None:
        """dashes: pixels drawn and left out in turn, such as ``6 3``; "" for a whole line."""
        ends = f"x1='{x1:.2f}' y1='{y1:.2f}' x2='{x2:.2f}' y2='{y2:.2f}'"
        dashed = f" stroke-dasharray={quoteattr(dashes)}" if dashes else ""
        self._shapes.append(f"<line {ends} stroke={quoteattr(colour)}{dashed}/>")

    def curve(self, points: Iterable[tuple[float, float]], colour: str) -> None:
        """Straight from point to point."""
        path = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
        self._shapes.append(
            f"<polyline points='{path}' fill='none' stroke={quoteattr(colour)} stroke-width='2'/>"
        )

    def dot(self, x: float, y: float, colour: str, tip: str = "") -> None:
        """`tip` shows when the pointer rests on it."""
        inside = f"<title>{escape(printable(tip))}</title>" if tip else ""
        self._shapes.append(
            f"<circle cx='{x:.2f}' cy='{y:.2f}' r='3.5' fill={quoteattr(colour)}>{inside}</circle>"
        )

    def text(
        self, x: float, y: float, words: str, *, size: int = 12, anchor: str = "start", colour: str = INK
    ) -> None:
        """anchor: start, middle or end of the words is at x; y: their baseline."""
        if not words:
            return
        style = f"font-size='{size}' text-anchor={quoteattr(anchor)} fill={quoteattr(colour)}"
        self._shapes.append(f"<text x='{x:.2f}' y='{y:.2f}' {style}>{escape(printable(words))}</text>")

    def to_text(self, title: str) -> str:
        """The file's content."""
        size = f"width='{self.width:.0f}' height='{self.height:.0f}' viewBox='0 0 {self.width:.0f} {self.height:.0f}'"
        back = f"<rect width='100%' height='100%' fill='{PAPER}'/>"
        head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} {FONT} role='img'>"
        return "\n".join(
            (head, f"<title>{escape(printable(title))}</title>", back, *self._shapes, "</svg>", "")
        )


def printable(words: str) -> str:
    """Without characters that XML has no place for."""
    return "".join(c if c.isprintable() else " " for c in words)


def fitted(words: str, width: float, size: int = 12) -> str:
    """As much of the words as fits into so many pixels, roughly; "" where hardly any does."""
    most = int(width / (0.56 * size))
    if len(words) <= most:
        return words
    return words[: most - 1] + "…" if most > 3 else ""
