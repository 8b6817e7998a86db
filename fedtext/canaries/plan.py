"""Which canaries there are: their directions, and which of them are in the run.

Legend: K canaries, N coordinates.
"""

import numpy as np
from numpy.typing import NDArray

from fedtext.config.canaries import LEAST, Canaries
from fedtext.config.experiment import Experiment
from fedtext.errors import UserError
from fedtext.mechanisms.base import Tensors
from fedtext.seeding import generator
from fedtext.state.fingerprint import released
from fedtext.wire.uplink import Uplink

_APART = 10  # coordinates for each canary, so that other canaries are little beside the noise
FAR = 64.0  # of a coordinate: more than any clip or bound of a coordinate leaves


class Plan:
    """The canaries of a run.

    Directions follow from the seed alone, so that the trials of a sweep have the same ones. Which canaries are in the
    run follows from the whole experiment, but from no key of its noise.

    Args:
        config: The keys.
        experiment: The experiment.
        clients: Number of clients that can train.

    Attributes:
        inside_K: Whether each canary is in the run; under local mechanisms, whether it sends its direction or the
            opposite.
    """

    def __init__(self, config: Canaries, experiment: Experiment, clients: int) -> None:
        self.config, self.experiment, self.clients = config, experiment, clients
        drawn = generator(experiment.seed, f"canaries/{released(experiment, 'canaries', clients)}")
        self.inside_K: NDArray[np.bool_] = drawn.random(config.clients) < 0.5

    def __len__(self) -> int:
        return self.config.clients

    def id(self, canary: int) -> int:
        """Return the id by which a canary's draws are told apart from those of clients."""
        return self.clients + canary

    def direction(self, canary: int, received: Tensors) -> Tensors:
        """Return a canary's direction: a sign for each coordinate.

        Args:
            canary: Its index.
            received: All shared parameters, also those that are not sent in this round: signs follow from the place
                of a tensor among them.

        Returns:
            Tensors of 1 and -1 with these names and shapes, float32.
        """
        size = sum(tensor.size for tensor in received.values())
        raw = generator(self.experiment.seed, "canary", client=canary).bytes(-(-size // 8))
        signs_N = np.unpackbits(np.frombuffer(raw, np.uint8), count=size).astype(np.float32)
        signs_N *= 2
        signs_N -= 1
        made, done = {}, 0
        for name, tensor in received.items():
            made[name] = signs_N[done : done + tensor.size].reshape(tensor.shape)
            done += tensor.size
        return made

    def payload(
        self, uplink: Uplink, canary: int, sign: float, flat: NDArray[np.float32], round_: int
    ) -> NDArray[np.uint8]:
        """Return what a canary sends.

        Args:
            uplink: The encoder of updates.
            canary: Its index.
            sign: 1 for its direction, -1 for the opposite.
            flat: The parameters that clients receive.
            round_: Number of the round.
        """
        received = uplink.received(flat, round_)
        far = np.float32(sign * FAR)
        whole = self.direction(canary, uplink.layout.views(flat))
        delta = {name: far * whole[name] for name in received}
        for name, shape in uplink.extras.items():
            delta[name] = np.zeros(shape, np.float32)
            received[name] = delta[name]
        return uplink.encoded(delta, received, self.id(canary), 1, round_)[0]


def check(experiment: Experiment, coordinates: int) -> None:
    """Check that canaries can be told apart.

    Args:
        experiment: The experiment.
        coordinates: Number of coordinates of an update.

    Raises:
        UserError: Canaries that are summed are too many for as few coordinates.
    """
    config = experiment.privacy.canaries
    if config and experiment.server.noise and config.clients * _APART > coordinates:
        most = coordinates // _APART
        fix = f"set it to {most} or less, or use a larger model" if most >= LEAST else "use a larger model"
        raise UserError(
            f"privacy.canaries.clients: {config.clients} directions in {coordinates:,} coordinates hide each other: "
            + fix
        )


def product(direction: Tensors, tensors: Tensors) -> float:
    """Return the scalar product of a direction with other tensors, over those that both have."""
    return sum(float(np.vdot(signs, tensors[name])) for name, signs in direction.items() if name in tensors)
