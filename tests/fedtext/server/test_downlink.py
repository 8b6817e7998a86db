"""The bytes that the server sends, in rounds in which different parameters are shared."""

from typing import Literal

import numpy as np

from fedtext.layout import Layout
from fedtext.methods import FedAvg
from fedtext.server.downlink import Downlink
from fedtext.server.fleet import ClientInfo
from fedtext.wire import encoding
from tests import tiny
from tests.loops import nonempty


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


def test_rows_that_no_client_sends_are_not_sent_to_clients_either() -> None:
    """FedRecon withholds words with digits, here every third one: a client rebuilds their rows by itself."""
    corpus = tiny.corpus(clients=3, texts=2)
    assert corpus.digits_V is not None
    federation = tiny.Finished("fedrecon", corpus, training=tiny.TRAINING | {"rounds": 1})
    rows = [np.count_nonzero(~corpus.digits_V[client.rows_R]) for client in corpus.clients]
    assert all(nonempty(count < len(client.rows_R) for count, client in zip(rows, corpus.clients, strict=True)))
    sizes = [encoding.encoded_size(federation.layout.with_rows(int(count)).shapes) for count in rows]
    assert federation.rows[0].metrics["bytes_down"] == sum(sizes)
