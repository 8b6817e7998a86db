"""FedAtt (Ji et al. 2019): FedAvg with attention over clients, layer by layer, on the server."""

from typing import Literal

from fedtext.aggregations.attention import Attention, AttentionKeys
from fedtext.methods.fedavg import FedAvg


class FedAtt(AttentionKeys, FedAvg):
    """FedAtt (Ji et al. 2019): attention over clients; a client that moved a layer farther has more weight in it.

    It is FedAvg with the aggregation `attention` and its keys: `method: {name: fedatt, step: 1}` and `method: fedavg`
    with `server.aggregation: {attention: {step: 1}}` give the same bits. `--keys attention` shows the equations.
    """

    name: Literal["fedatt"] = "fedatt"  # type: ignore[assignment]

    @property
    def aggregation(self) -> Attention:
        return Attention(step=self.step, norm=self.norm, attention=self.attention)
