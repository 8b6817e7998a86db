"""The privacy cost of the norm of ``clip.adaptive`` (Andrew et al. 2021, theorem 1).

A round releases the noised sum of updates of norm C or less, and the noised number of those that were not clipped,
counted as b - 1/2 for each client, so that one client changes it by 1/2. With noise of standard deviation z_u C on the
sum and sigma on the number both together are one Gaussian mechanism with the multiplier z, where z^-2 = z_u^-2 +
(2 sigma)^-2. Here z is given, and z_u = (z^-2 - (2 sigma)^-2)^(-1/2).
"""

from typing import TYPE_CHECKING

from fedtext.errors import UserError
from fedtext.mechanisms.clip import AdaptiveNorm, Clip

if TYPE_CHECKING:
    from fedtext.config.settings import Settings

_SHARE = 1 / 20  # of the expected number of clients, as in the paper


def adaptive_norm(experiment: "Settings") -> AdaptiveNorm | None:
    """Return how the norm of the uplink's last clip adapts; None if it does not."""
    last = experiment.uplink[-1] if experiment.uplink else None
    return last.adaptive if isinstance(last, Clip) else None


def number_sigma(experiment: "Settings", clients: int) -> float:
    """Return the standard deviation of the noise on the number of updates within the norm.

    With ``server.noise.cohort_size`` it is that of the simulated cohort.

    Args:
        experiment: The experiment, with ``clip.adaptive`` and ``server.noise``.
        clients: Number of clients.
    """
    asked, noise = adaptive_norm(experiment), experiment.server.noise
    assert asked is not None
    assert noise is not None
    return asked.sigma or _SHARE * (noise.cohort_size or experiment.participation.expected(clients))


def update_multiplier(experiment: "Settings", clients: int, multiplier: float) -> float:
    """Return the noise multiplier of the updates alone.

    Args:
        experiment: The experiment.
        clients: Number of clients.
        multiplier: That of a round, z.

    Raises:
        UserError: The noise on the number of updates within the norm is too small for it.
    """
    if adaptive_norm(experiment) is None:
        return multiplier
    sigma = number_sigma(experiment, clients)
    left = multiplier**-2 - (2 * sigma) ** -2
    if left <= 0:
        raise UserError(
            f"uplink: clip.adaptive: noise of sigma = {sigma:.4g} on the number of updates within the norm costs more "
            f"than a noise multiplier of {multiplier:.4g} allows: set adaptive.sigma above {multiplier / 2:.4g}, or "
            "have more clients in a round"
        )
    return float(left**-0.5)


def told(experiment: "Settings", clients: int, multiplier: float, share: float = 1.0) -> str:
    """Return how the noise is divided, for the ledger; empty without ``clip.adaptive``.

    Args:
        experiment: The experiment.
        clients: Number of clients.
        multiplier: The noise multiplier of a round, z; with ``server.noise.cohort_size`` that of the simulated cohort.
        share: The expected number of clients as a share of that cohort: of this run's own noise.
    """
    if adaptive_norm(experiment) is None:
        return ""
    updates, number = update_multiplier(experiment, clients, multiplier), number_sigma(experiment, clients)
    return (
        f"of each round's noise multiplier {multiplier * share:.4g} the updates have {updates * share:.4g}, and the "
        "number of those within the norm, which is released too (clip.adaptive), has noise of standard deviation "
        f"{number * share:.4g}; "
    )
