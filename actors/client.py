"""The Ray actor that hosts clients."""

from collections.abc import Mapping

import numpy as np
import ray
import torch
from numpy.typing import NDArray

from fedtext.corpora.types import ClientData
from fedtext.experiment import Experiment
from fedtext.worker import Reply, Worker


@ray.remote
class ClientActor:
    """One or more clients with their private state, on one share of one node's CPUs and GPUs."""

    def __init__(
        self,
        experiment: Experiment,
        classes: int,
        vocabulary: int,
        private: Mapping[str, NDArray[np.float32]],
        *clients: ClientData,
    ) -> None:
        # A logical GPU (ray start --num-gpus on a machine without one) gives a share of nothing: the CPU computes.
        device = (
            "cuda" if ray.get_runtime_context().get_accelerator_ids()["GPU"] and torch.cuda.is_available() else "cpu"
        )
        self.worker = Worker(experiment, classes, vocabulary, clients, private, device)

    def where(self) -> str:
        """The node this actor lives on; answering it means it is ready."""
        return ray.get_runtime_context().get_node_id()

    def train(self, flat: NDArray[np.float32], round_: int, client: int) -> Reply:
        return self.worker.train(flat, round_, client)

    def evaluate(self, flat: NDArray[np.float32], round_: int, client: int, personalize: bool) -> dict[str, float]:
        return self.worker.evaluate(flat, round_, client, personalize)

    def private_state(self, client: int) -> bytes:
        return self.worker.private_state(client)

    def restore(self, client: int, state: bytes) -> None:
        self.worker.restore(client, state)
