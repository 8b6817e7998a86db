"""A loop in plain torch over all clients, without a framework: one process, with as many torch threads as workers."""

import torch

from .network import local_update, network
from .workloads import Task


def run(file: str) -> None:
    task = Task.read(file)
    torch.set_num_threads(task.workers)
    task.finish({name: tensor.numpy() for name, tensor in train(task).items()})


def train(task: Task) -> dict[str, torch.Tensor]:
    """Return the parameters after the last round: means of the clients', which have the same number of texts."""
    module, clients = network(task), task.workload.clients
    server = {name: tensor.clone() for name, tensor in module.shared().items()}
    for round_ in range(1, task.workload.rounds + 1):
        total = {name: torch.zeros_like(tensor) for name, tensor in server.items()}
        for client in range(clients):
            module.receive(server)
            local_update(module, task, round_, client)
            for name, tensor in module.shared().items():
                total[name] += tensor
        server = {name: tensor / clients for name, tensor in total.items()}
        task.round_ended()
    return server
