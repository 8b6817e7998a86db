"""Flower's simulation engine: a ServerApp with its FedAvg strategy, a ClientApp, and its pool of Ray actors.

``run_simulation`` starts the engine that ``flwr run`` starts, without the processes of the latter's control plane.
"""

from functools import cache

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from .module import Module
from .network import local_update, network
from .workloads import Task

client_app = ClientApp()


@cache
def hosted(file: str) -> tuple[Task, Module]:
    """State of a worker process: the task, and one module into which each client's weights are loaded."""
    torch.set_num_threads(1)
    task = Task.read(file)
    return task, network(task)


@client_app.train()
def train(message: Message, context: Context) -> Message:
    config = message.content["config"]
    task, module = hosted(config["task"])
    module.receive(message.content["arrays"].to_torch_state_dict())
    samples = local_update(module, task, config["server-round"], int(context.node_config["partition-id"]))
    metrics = MetricRecord({"num-examples": samples})
    return Message(RecordDict({"arrays": ArrayRecord(module.shared()), "metrics": metrics}), reply_to=message)


def run(file: str) -> None:
    task = Task.read(file)
    clients = task.workload.clients
    answered: list[int] = []
    server_app = ServerApp()

    def count(replies: list[RecordDict], _: str) -> MetricRecord:
        answered.append(len(replies))
        return MetricRecord()

    def after(round_: int, _: ArrayRecord) -> None:
        """Called before the first round and after each."""
        if round_ and answered != [clients] * round_:  # Flower itself goes on without clients that fail
            raise RuntimeError(f"not all of {clients} clients answered in round {round_}")
        if round_:
            task.round_ended()

    @server_app.main()
    def main(grid: Grid, _: Context) -> None:
        torch.set_num_threads(1)
        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients, train_metrics_aggr_fn=count
        )
        result = strategy.start(
            grid,
            ArrayRecord(network(task).shared()),
            task.workload.rounds,
            train_config=ConfigRecord({"task": file}),
            evaluate_fn=after,
        )
        task.finish({name: array.numpy() for name, array in result.arrays.items()})

    # "local": without it Ray would join a cluster that happens to run on this machine.
    init = {"address": "local", "num_cpus": task.workers, "log_to_driver": False}
    run_simulation(
        server_app,
        client_app,
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}, "init_args": init},
    )
