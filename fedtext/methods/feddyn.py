"""FedDyn (Acar et al. 2021, algorithm 1): local objectives whose regularizer follows each client's gradient."""

from typing import Literal

from pydantic import Field

from fedtext.methods.fedavg import FedAvg
from fedtext.methods.state import Local, State, Tensors


class FedDyn(FedAvg):
    """FedDyn (Acar et al. 2021): FedAvg with a dynamic regularizer on each client.

    A client minimises L_k(theta) - <h_k, theta> + alpha/2 ||theta - theta_received||^2, where h_k, its state, is the
    gradient of L_k at the end of its last local update: h_k <- h_k - alpha * update. The server keeps h, from which it
    subtracts alpha times the mean update of all clients, and subtracts h / alpha from the mean of the participants'
    models. A stationary point of this iteration is one of the sum of the L_k.

    Nothing is sent beside an update, and clients do not receive h. Where mechanisms change updates, h_k follows the
    update as the server decodes it, like h, in the embedding rows that the client has. With an aggregation other than
    the mean, h follows the aggregate.
    """

    name: Literal["feddyn"] = "feddyn"  # type: ignore[assignment]
    alpha: float = Field(0.01, gt=0, description="weight of the regularizer; 0.001 to 0.1 in the paper")

    def client_state(self, received: Tensors) -> State:
        return {"h_k": received.zeros()}

    def server_state(self, shared: Tensors) -> State:
        return {"h": shared.zeros()}

    def gradient(self, gradients: Tensors, local: Local) -> Tensors:
        return gradients - local.state["h_k"] + self.alpha * local.delta

    def after_update(self, local: Local) -> tuple[State, State]:
        return {"h_k": local.state["h_k"] - self.alpha * local.delta}, {}

    def after_sending(self, local: Local, state: State, update: Tensors, extras: State) -> State:
        return {"h_k": local.state["h_k"] - self.alpha * update}

    def server_step(self, server: State, change: Tensors, extras: State, share: float) -> tuple[State, Tensors]:
        h = server["h"] - self.alpha * share * change
        return {"h": h}, change - h / self.alpha
