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

    Where mechanisms change what is sent, c_k changes by what the server decodes, clip and noise included, so that c
    remains that mean. Noise of the server (server.noise) is in c alone.

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

    def after_sending(self, local: Local, state: State, update: Tensors, extras: State) -> State:
        return {"c_k": local.state["c_k"] + extras["delta_c"]}

    def server_step(self, server: State, change: Tensors, extras: State, share: float) -> tuple[State, Tensors]:
        return {"c": server["c"] + share * extras["delta_c"]}, change
