"""The bytes that the server sends, in rounds in which different parameters are shared."""

from typing import Literal

from fedtext.layout import Layout
from fedtext.methods import FedAvg
from fedtext.server.downlink import Downlink
from fedtext.server.fleet import ClientInfo
from fedtext.wire import encoding
from tests import tiny


class EveryThird(FedAvg):
    """Shares the encoder in rounds 1, 4, 7, ... alone, and the bias from round 6 on."""

    name: Literal["every_third"] = "every_third"  # type: ignore[assignment]

    def shared_in(self, parameter: str, round_: int) -> bool:
        return {"encoder": round_ % 3 == 1, "bias": round_ >= 6}.get(parameter, True)


def test_what_was_shared_before_is_sent_until_a_client_has_its_last_value() -> None:
    """The encoder changes at the end of rounds 1 and 4: clients receive it in the rounds in which it is shared, and in
    the next one in which they take part. Client 1 misses round 2. The bias is not sent before it is shared."""
    experiment = tiny.experiment(wire={"rows": "all"}).model_copy(update={"method": EveryThird()})
    shapes = {"encoder": (50, 2), "head": (3,), "bias": (7,)}
    clients = [
        ClientInfo(id=i, name="", samples=1, tokens=1, rows=1, features=0, digits=0, evaluates=True) for i in (0, 1)
    ]
    cohorts = {1: [0, 1], 2: [0], 3: [0, 1], 4: [0, 1], 5: [0, 1], 6: [0, 1]}
    downlink = Downlink(experiment, Layout(shapes), cohorts.__getitem__)
    found = [downlink.size([clients[i] for i in cohort], round_) for round_, cohort in cohorts.items()]
    both, head, end = (
        encoding.encoded_size({name: shapes[name] for name in names})
        for names in (["encoder", "head"], ["head"], ["head", "bias"])
    )
    assert found == [2 * both, both, head + both, 2 * both, 2 * both, 2 * end]
