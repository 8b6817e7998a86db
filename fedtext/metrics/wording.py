"""The formatting of metrics for people.

Accuracies (``Ag``, ``Ap`` and their ``_val`` forms), areas under the ROC curve (``AUC``) and shares of next words
(``top1``) are fractions in [0, 1] in a record and are shown in percent.
"""

from collections.abc import Callable, Mapping

from fedtext.metrics import find

FACTS = ("Ag", "Ap_0", "Ap", "Local", "Global", "AUC", "perplexity", "perplexity_val")  # metrics on a round's line


def facts(values: Mapping[str, float]) -> list[str]:
    """Return the loss and the metrics of ``FACTS`` as words, as far as they are there."""
    found = [f"loss {decimal(values['loss'])}"] if "loss" in values else []
    return found + [f"{name} {words(values[name])}" for name in FACTS if name in values and (words := written(name))]


def sent(up: float, down: float) -> str:
    """Format the bytes of all rounds: ``up 1.2 MB down 1.3 MB``."""
    return f"up {data_size(up)} down {data_size(down)}"


def told(name: str, value: float) -> str:
    """Format a value of any metric, with its unit."""
    metric = find(name)
    if metric and metric.unit == "fraction":
        return f"{percent(value)} %"
    if metric and metric.unit == "seconds" and value < 10:
        return f"{value:.3g} s"
    return (written(name) or FORMATS.get(metric.unit if metric else "", plain))(value)


def plain(value: float) -> str:
    """Format a number without a unit: ``0.05619``, ``62,401``."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == round(value) else f"{value:.4g}"


def written(name: str) -> Callable[[float], str] | None:
    """Return the formatter of a metric of an evaluation or an attack: fractions in percent, perplexities with one
    decimal, bits and nats with three. None for all other metrics."""
    metric = find(name)
    if metric is None or metric.kind not in ("evaluation", "attack"):
        return None
    if metric.unit == "perplexity":
        return lambda value: f"{value:.1f}"
    if metric.unit in ("bits", "nats"):
        return lambda value: f"{value:.3f}"
    return percent if metric.unit == "fraction" else None


def percent(fraction: float) -> str:
    """Format a fraction in percent: ``85.3``."""
    return f"{100 * fraction:.1f}"


def decimal(value: float) -> str:
    """Format a loss: three decimals, but never ``0.000`` for a small value."""
    return f"{value:.3f}" if abs(value) >= 0.001 or value == 0 else f"{value:.1e}"


def data_size(count: float) -> str:
    """Format bytes in decimal units: ``532 B``, ``12.1 MB``, ``80 MB``."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    unit = units[0]
    return f"{count:.0f} {unit}" if unit == "B" or count >= 20 else f"{count:.1f} {unit}"


def duration(seconds: float) -> str:
    """Format seconds: ``4.1 s``, ``28 s``, ``3 min 05 s``, ``2 h 10 min``."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def pace(seconds: float) -> str:
    """Format the seconds of a round: ``4.1``, ``0.012``."""
    return f"{seconds:.1f}" if seconds >= 0.095 else f"{seconds:.3f}"


def format_epsilon(epsilon: float) -> str:
    """Format an epsilon for messages: ``5,864,447``, ``9.998``."""
    return f"{epsilon:,.0f}" if epsilon >= 1000 else f"{epsilon:.4g}"


FORMATS: Mapping[str, Callable[[float], str]] = {  # by unit
    "nats": decimal,
    "bits": decimal,
    "bytes": data_size,
    "seconds": duration,
    "epsilon": format_epsilon,
}
