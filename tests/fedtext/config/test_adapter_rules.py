"""How rules on adapters ask a method what it shares."""

import pytest

from fedtext.config import compatibility
from fedtext.config.compatibility import adapters
from fedtext.methods.fedavg import FedAvg
from fedtext.methods.lg_fedavg import LGFedAvg
from fedtext.methods.state import State, Tensors
from fedtext.models.adapters import A, B
from tests import tiny
from tests.fedtext.config.adapter_cases import adapted
from tests.loops import nonempty


class Keeping(FedAvg):
    """A method of a plug-in that keeps the adapters by what it says of each round."""

    def shared_in(self, parameter: str, round_: int) -> bool:
        return not parameter.endswith((A, B))


def test_private_factors_are_not_asked_for_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "RULES", [])
    made = tiny.experiment(model=adapted(), server={"aggregation": "lora"})
    assert list(adapters.factors(made)) == []
    for method in nonempty([LGFedAvg(), Keeping()]):
        said = list(adapters.factors(made.model_copy(update={"method": method})))
        assert [f"method {method.name} keeps them at each client" in sentence for sentence in said] == [True]
    monkeypatch.setattr(LGFedAvg, "shared_in", None)  # nobody calls it
    assert len(list(adapters.factors(made.model_copy(update={"method": LGFedAvg()})))) == 1


class Remembering(FedAvg):
    """A method of a plug-in whose clients keep what they received."""

    def client_state(self, received: Tensors) -> State:
        return {"last": received}


@pytest.mark.parametrize(("factors", "refused"), [("svd", 1), ("mean", 0)])
def test_a_state_of_clients_is_refused_where_factors_get_other_coordinates(factors: str, refused: int) -> None:
    made = tiny.experiment(model=adapted(), server={"aggregation": {"lora": {"factors": factors}}})
    said = list(adapters.factors(made.model_copy(update={"method": Remembering()})))
    assert ["keeps a state of clients in those of the round before" in sentence for sentence in said] == [
        True
    ] * refused
