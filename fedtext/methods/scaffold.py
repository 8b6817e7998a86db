"""SCAFFOLD (Karimireddy et al. 2020, algorithm 1): control variates against the drift of clients apart."""

from typing import Literal

from fedtext.methods.fedavg import FedAvg
from fedtext.methods.state import Local, State, Tensors


class Scaffold(FedAvg):
    """SCAFFOLD (Karimireddy et al. 2020): FedAvg whose clients correct each step for their drift.

    A client steps along g_k - c_k + c, where c_k is its own control variate and c the server's. After its local update
    c_k is the mean of the gradients g_k of its steps (option II of the paper). With momentum the mean is weighted by
    how much a step moves the parameters in all. The client sends the change of c_k beside its update, which doubles the
    bytes both ways. The server adds these changes to c: with server.weights: uniform c is the mean of all c_k.

    Where a clip or server.aggregation: norm_bounded shortens what is sent, the server adds less to c than clients add
    to c_k. The difference is not made up later, so c is then not the mean of the c_k.

    The correction moves every embedding row, also of words that a client does not have: all rows travel and are
    trained. It needs training.optimizer: sgd, whose update is linear in the gradients.
    """

    name: Literal["scaffold"] = "scaffold"  # type: ignore[assignment]
    whole_table = True
    sends_state = True
    takes_sgd = True

    def client_state(self, received: Tensors) -> State:
        return {"c_k": received.zeros()}

    def server_state(self, shared: Tensors) -> State:
        return {"c": shared.zeros()}

    def extras(self, shared: Tensors) -> State:
        return {"delta_c": shared}

    def gradient(self, gradients: Tensors, local: Local) -> Tensors:
        return gradients - local.state["c_k"] + local.server["c"]

    def after_update(self, local: Local) -> tuple[State, State]:
        c_k = local.state["c_k"] - local.server["c"] + local.mean_gradient
        return {"c_k": c_k}, {"delta_c": c_k - local.state["c_k"]}

    def server_step(self, server: State, change: Tensors, extras: State, share: float) -> tuple[State, Tensors]:
        return {"c": server["c"] + share * extras["delta_c"]}, change
