"""Ledger entries of Gaussian noise, on updates or on their sum."""

import math

from fedtext.accounting import composition
from fedtext.accounting.entry import Entry, Unit

FLOATS = "norms are clipped and noise is drawn in floating point, whose rounding an attacker may use (Mironov 2012)"

SNAPPED = (
    "means and noise are rounded to multiples of a power of two, the noise is an exact sample of rounded Gaussian "
    "noise, and larger by what rounding and clipping in floating point add to the distance of two means"
)
# Of correlated noise with privacy.noise: secret.
ROUNDED = (
    "the server's mean and its noise are rounded to multiples of about a billionth of the noise's deviation, so that "
    "their sum shows no finer digits of either, and the noise is larger by what rounding and clipping in floating "
    "point add to the distance of two means; correlated noise is a sum of floating-point draws, whose probabilities "
    "are not exact"
)


def gaussian_entry(
    name: str,
    unit: Unit,
    multiplier: float,
    fraction: float,
    rounds: int,
    delta: float,
    assumptions: str,
    about: str = "",
) -> Entry:
    """Compute the entry of ``rounds`` Gaussian mechanisms.

    Args:
        name: Name of the mechanism.
        unit: What is protected.
        multiplier: Standard deviation of the noise / distance of two neighbouring inputs.
        fraction: Probability of each client to be in a round's Poisson sample; 1: all clients take part.
        rounds: Number of mechanisms that are composed.
        delta: Delta at which epsilon is stated.
        assumptions: Conditions under which the guarantee holds.
        about: What ``how`` ends with; empty: the number of mechanisms of a run.
    """
    if not composition.available():
        return Entry(name, unit, None, delta, f"not computed: {composition.INSTALL}", assumptions)
    epsilon = composition.sampled_gaussian(multiplier, fraction, rounds, delta)
    if not math.isfinite(epsilon):
        return Entry(name, unit, None, delta, f"no guarantee: a noise multiplier of {multiplier:.4g} hides nothing")
    how = f"gaussian, noise multiplier {multiplier:.4g}"
    if fraction < 1:
        how += f", Poisson samples of {fraction:g}"
    about = about or (f"{rounds} rounds" if unit == "run" else "")
    return Entry(name, unit, epsilon, delta, how + (f", {about}" if about else ""), assumptions)
