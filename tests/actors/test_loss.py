"""What is said of a lost client actor, from Ray's own errors."""

import pytest
from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, ActorUnavailableError, NodeDiedError, OutOfMemoryError

from actors.loss import why_lost
from actors.patience import HungActorsError

ID = bytes(range(16))
THERE = {ID.hex(): "10.0.0.2"}


def died(why: str) -> ActorDiedError:
    return ActorDiedError(ActorDiedErrorContext(actor_id=ID, class_name="ClientActor", pid=7, error_message=why))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ActorUnavailableError("RpcError: RPC error: Socket closed", ID), "on node 10.0.0.2: it does not answer"),
        (died("The actor is dead because its node has died. Node Id: 13"), "on node 10.0.0.2: its node has died"),
        (died("The actor is dead because its worker process has died."), "on node 10.0.0.2: its process ended"),
        (NodeDiedError("Task failed: node 13 is dead"), "its node has died"),
        (OutOfMemoryError("Task was killed: memory ran out\nmore"), "Task was killed: memory ran out"),
        (HungActorsError("it took longer than 5 s"), "it took longer than 5 s"),
    ],
)  # fmt: skip
def test_a_loss_is_told_in_a_few_words(error: Exception, said: str) -> None:
    assert why_lost(error, THERE) == said
    assert why_lost(error, {}) == said.removeprefix("on node 10.0.0.2: ")
