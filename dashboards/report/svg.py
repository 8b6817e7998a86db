"""Elements of SVG drawings: numbers, scales, axes, marks and legends. Colours are in report.css."""

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from dashboards.trial import short

WIDTH = 360  # pixels: as wide as a telephone shows without shrinking
SERIES = 7  # colours that are told apart, each with a dash and a mark of its own
DASHES = ("", "6 3", "2 2", "8 3 2 3", "4 2", "1 3", "10 4")
LETTER = 6.2  # width of a letter, a little more than the mean
ROUNDING = 1e-9  # share of values: if they differ by less they are the same
WIDE_LOG = 10.0  # positive values that differ by this factor are on a logarithmic scale


@dataclass
class Ids:
    """Makes ids that are unique in a page."""

    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def __call__(self, stem: str) -> str:
        return f"{stem}-{next(self._numbers)}"


def clean(text: str) -> str:
    """Return text for HTML: escaped, and without characters that no page may have."""
    return html.escape("".join(c for c in text if c.isprintable() or c in "\n\t"))


def number(value: float) -> str:
    """Format a coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def element(name: str, content: str = "", **attributes: object) -> str:
    """Return an element.

    Args:
        name: Its name.
        content: Its content, escaped already.
        attributes: ``class_`` stands for ``class``, and ``_`` for ``-``; numbers are coordinates.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{number(one) if isinstance(one, float | int) else clean(str(one))}"'
        for key, one in attributes.items()
        if one != ""
    )
    return f"<{name}{written}>{content}</{name}>"


def text(
    x: float, y: float, content: str, anchor: str = "start", kind: str = "", room: float = 0, **more: object
) -> str:
    """Return a line of text. If it is too long for ``room`` it is shortened, and whole in its title.

    Args:
        x: Its place.
        y: Its base line.
        content: The text.
        anchor: ``start``, ``middle`` or ``end``.
        kind: Its class.
        room: Pixels that it may take; 0: any.
        more: Further attributes.
    """
    shown = short(content, max(int(room / LETTER), 2)) if room else content
    inner = clean(shown) + (element("title", clean(content)) if shown != content else "")
    return element("text", inner, x=x, y=y, text_anchor="" if anchor == "start" else anchor, class_=kind, **more)


def drawing(ids: Ids, size: tuple[float, float], title: str, desc: str, body: Iterable[str]) -> str:
    """Return a drawing with a title and a description for those who do not see it.

    Args:
        ids: Makes its ids.
        size: Width and height.
        title: Its title.
        desc: Its description.
        body: Its elements.
    """
    named, described = ids("title"), ids("desc")
    head = element("title", clean(title), id=named) + element("desc", clean(desc), id=described)
    box = f"0 0 {number(size[0])} {number(size[1])}"
    attributes = f'role="img" aria-labelledby="{named} {described}" viewBox="{box}" width="{number(size[0])}"'
    return f'<svg {attributes} height="{number(size[1])}">{head}{"".join(body)}</svg>'


def wrapped(content: str, room: float) -> list[str]:
    """Return a text as one line or two, cut where there is a blank."""
    most = int(room / LETTER)
    cut = content.rfind(" ", 0, most + 1)
    return [content] if len(content) <= most or cut <= 0 else [content[:cut], content[cut + 1 :]]


@dataclass(frozen=True)
class Scale:
    """Maps values to pixels.

    Args:
        low, high: The ends in values.
        start, end: The ends in pixels.
        log: Whether it is logarithmic.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (
            (math.log10(one) for one in (self.low, self.high, value))
            if self.log
            else (
                self.low,
                self.high,
                value,
            )
        )
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Return at most about ``most`` round values between the ends."""
        if self.log:
            exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            parts = (1,) if len(exponents) > 3 else (1, 2, 5)
            found = [part * 10.0**exponent for exponent in exponents for part in parts]
            found = [one for one in found if self.low <= one <= self.high * (1 + 1e-9)]
            return found[:: max(1, math.ceil(len(found) / (most + 1)))]
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(part * power for part in (1, 2, 2.5, 5, 10) if part * power >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [round(place * step, 12) for place in range(first, math.floor(self.high / step + 1e-9) + 1)]


def scale(values: Sequence[float], start: float, end: float, log: bool | None = None) -> Scale:
    """Return a scale on which all values have room.

    Args:
        values: The values.
        start, end: The ends in pixels.
        log: Whether it is logarithmic; None: if all values are positive and far apart.
    """
    low, high = min(values), max(values)
    far = low > 0 and high / low > WIDE_LOG
    if far if log is None else log:
        margin = (high / low) ** 0.06 if high > low else 2.0
        return Scale(low / margin, high * margin, start, end, log=True)
    same = high - low <= ROUNDING * max(abs(low), abs(high))
    margin = (0.05 * abs(high) or 1.0) if same else 0.06 * (high - low)
    return Scale(low - margin, high + margin, start, end)


def x_axis(on: Scale, y: float, label: str, write: Callable[[float], str], top: float) -> str:
    """Return a horizontal axis with its grid.

    Args:
        on: The scale.
        y: Its place.
        label: Its name.
        write: Formats the value of a tick.
        top: Where the lines of the grid end.
    """
    made = [element("path", d=f"M{number(on.start)} {number(y)}H{number(on.end)}", class_="axis")]
    for tick in _sparse([(on(one), said) for one in on.ticks() if (said := write(one))]):
        made.append(element("path", d=f"M{number(tick[0])} {number(y)}V{number(top)}", class_="grid"))
        made.append(text(tick[0], y + 14, tick[1], "middle", "soft"))
    made.append(text((on.start + on.end) / 2, y + 30, label, "middle", room=on.end - on.start + 40))
    return "".join(made)


def _sparse(ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the ticks whose texts do not run into each other."""
    kept: list[tuple[float, str]] = []
    for place, said in ticks:
        if not kept or place - kept[-1][0] > LETTER * (len(said) + len(kept[-1][1])) / 2 + 8:
            kept.append((place, said))
    return kept


def y_axis(on: Scale, x: float, label: str, write: Callable[[float], str], end: float) -> str:
    """Return a vertical axis with its grid; its name is above it.

    Args:
        on: The scale.
        x: Its place.
        label: Its name.
        write: Formats the value of a tick.
        end: Where the lines of the grid end.
    """
    made = [text(0, min(on.start, on.end) - 8, label, room=end)]
    for tick in on.ticks():
        made.append(element("path", d=f"M{number(x)} {number(on(tick))}H{number(end)}", class_="grid"))
        made.append(text(x - 6, on(tick) + 4, write(tick), "end", "soft"))
    return "".join(made)


def mark(x: float, y: float, kind: int, size: float = 4.5, hollow: bool = False, title: str = "") -> str:
    """Return the mark of a series.

    Args:
        x, y: Its middle.
        kind: Number of the series.
        size: Half its width.
        hollow: Whether it is not filled.
        title: Shown where a pointer rests on it.
    """
    kind, s = kind % SERIES, size
    shapes = (
        f"M{number(x - s)} {number(y)}a{s} {s} 0 1 0 {2 * s} 0a{s} {s} 0 1 0 {-2 * s} 0z",
        f"M{number(x - s)} {number(y - s)}h{2 * s}v{2 * s}h{-2 * s}z",
        f"M{number(x)} {number(y - s)}l{s} {1.8 * s:.2f}h{-2 * s}z",
        f"M{number(x)} {number(y - 1.3 * s)}l{1.3 * s:.2f} {1.3 * s:.2f}l{-1.3 * s:.2f} {1.3 * s:.2f}"
        f"l{-1.3 * s:.2f} {-1.3 * s:.2f}z",
        f"M{number(x)} {number(y + s)}l{s} {-1.8 * s:.2f}h{-2 * s}z",
        f"M{number(x - s)} {number(y - s / 2)}h{2 * s}v{s}h{-2 * s}z",
        f"M{number(x - s / 2)} {number(y - s)}h{s}v{2 * s}h{-s}z",
    )
    inner = element("title", clean(title)) if title else ""
    return element("path", inner, d=shapes[kind], class_=f"s{kind} {'hollow' if hollow else 'mark'}")


def path(points: Sequence[tuple[float, float]]) -> str:
    """Return the data of a line through points."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
