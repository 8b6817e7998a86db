"""FedAtt (Ji et al. 2019): FedAvg whose server attends to clients, layer by layer."""

from typing import Literal

from fedtext.aggregations.attention import Attention, AttentionKeys
from fedtext.methods.fedavg import FedAvg


class FedAtt(AttentionKeys, FedAvg):
    """FedAtt (Ji et al. 2019): attention over clients; who moved a layer farther counts for more in it.

    FedAvg with the aggregation `attention`, whose keys these are: `method: {name: fedatt, step: 1}` and `method:
    fedavg` with `server.aggregation: {attention: {step: 1}}` give the same bits. `--keys attention` has the
    equations."""

    name: Literal["fedatt"] = "fedatt"  # type: ignore[assignment]

    @property
    def aggregation(self) -> Attention:
        return Attention(step=self.step, norm=self.norm, attention=self.attention)
