"""pfl-research: its SimulatedBackend and FederatedAveraging, its processes joined through torch.distributed."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .workloads import Recurrent, Task


def run(file: str) -> None:
    """The first process starts the others, as its guide to distributed simulations does by hand."""
    task = Task.read(file)
    if task.workers == 1 or "PFL_WORKER_RANK" in os.environ:
        return simulate(task)
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"localhost:{port}" for port in free_ports(task.workers))
    command = [sys.executable, "-m", f"{__package__}.side", "pfl", file]
    others = [
        subprocess.Popen(command, env=os.environ | {"PFL_WORKER_RANK": str(rank)}) for rank in range(1, task.workers)
    ]
    os.environ["PFL_WORKER_RANK"] = "0"
    try:
        simulate(task)
    finally:
        for other in others:
            other.terminate()
            other.wait()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def simulate(task: Task) -> None:
    # Imported here: pfl joins the other processes while it is imported.
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    from .network import Batch, Classifier, Texts, network, sgd, texts

    torch.set_num_threads(1)
    work = task.workload
    assert isinstance(work, Recurrent)
    first = os.environ.get("PFL_WORKER_RANK", "0") == "0"
    if work.clients % task.workers:  # pfl draws a user for every process at a time
        raise ValueError(f"{work.clients} clients cannot be split evenly over {task.workers} processes")

    class Clock(TrainingProcessCallback):
        """Counts rounds from 1, and notes when each of them ended."""

        round = 1

        def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
            self.round = central_iteration + 2
            if first:
                task.round_ended()
            return False, Metrics()

    class Client(Dataset):
        """A user whose batches come in fedtext's order; pfl's own never shuffles."""

        def __init__(self, held: Texts, number: int) -> None:
            super().__init__((held.labels_N,), user_id=str(number))
            self.held, self.number = held, number

        def iter(self, batch_size: int | None) -> Iterator[Batch]:
            assert batch_size == work.batch
            return self.held.round(work, clock.round, self.number)

    class Training(FederatedAveraging):
        """FederatedAveraging without the evaluation on train data that pfl makes in the first iteration."""

        def get_next_central_contexts(self, *arguments: Any, **named: Any) -> Any:
            contexts, model, metrics = super().get_next_central_contexts(*arguments, **named)
            return contexts and tuple(replace(context, do_evaluation=False) for context in contexts), model, metrics

    class WithMetrics(Classifier):
        """Required by pfl; never called here."""

        def metrics(self, *batch: Any) -> dict[str, Any]:
            return {}

    clock = Clock()
    clients = [Client(held, number) for number, held in enumerate(texts(task.inputs))]
    module = network(task, WithMetrics)
    model = PyTorchModel(
        module,
        local_optimizer_create=lambda parameters, lr: sgd(parameters, lr, work.momentum),
        central_optimizer=sgd(module.parameters(), lr=1.0),
    )
    data = FederatedDataset(clients.__getitem__, get_user_sampler("minimize_reuse", range(work.clients)))
    Training().run(
        NNAlgorithmParams(
            central_num_iterations=work.rounds,
            evaluation_frequency=work.rounds,
            train_cohort_size=work.clients,
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=work.lr, local_batch_size=work.batch),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    if first:
        task.finish({name: tensor.numpy() for name, tensor in module.state_dict().items()})
    else:
        task.wait()
