"""Plans: how clients become actors, and what is refused before anything starts."""

import pytest

from actors.placement import assign, plan
from fedtext.errors import UserError
from fedtext.experiment import Resources

LAPTOP = [{"CPU": 2.0}]
FOUR_GPUS = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 2.0}]
TWO_GPUS = [{"CPU": 16.0, "GPU": 2.0}]


def test_clients_are_packed_into_the_slots_there_are() -> None:
    assert plan(Resources(), 16, LAPTOP).actors == 2
    assert plan(Resources(), 1, LAPTOP).trials == 2
    assert plan(Resources(), 16, [{"CPU": 64.0}]).actors == 16
    assert plan(Resources(), 16, [{"CPU": 64.0}]).trials == 4
    assert plan(Resources(clients_per_actor=8), 16, LAPTOP).actors == 2
    assert plan(Resources(clients_per_actor=16), 16, LAPTOP).trials == 2
    assert plan(Resources(cpus_per_actor=0.5), 16, LAPTOP).actors == 4
    assert plan(Resources(), 4, [{"CPU": 3.0}, {"CPU": 3.0}]).actors == 4
    assert plan(Resources(cpus_per_actor=2), 4, [{"CPU": 3.0}, {"CPU": 3.0}]).actors == 2, "an actor is on one node"


def test_sixteen_clients_on_quarters_of_gpus() -> None:
    quarter = Resources(gpus_per_actor=0.25)
    assert plan(quarter, 16, FOUR_GPUS).actors == 16
    assert plan(quarter, 16, TWO_GPUS).actors == 8
    assert plan(Resources(), 16, FOUR_GPUS).gpus == 0.25, "auto shares the GPUs evenly"
    assert plan(Resources(gpus_per_actor=1), 2, TWO_GPUS).actors == 2
    for count in range(1, 100):  # Ray counts in ten-thousandths: the shares must fit on the GPU that was divided
        for asked in (1 / count, round(1 / count, 4)):
            shares = plan(Resources(gpus_per_actor=asked, cpus_per_actor=0), count, [{"CPU": 1.0, "GPU": 1.0}])
            assert shares.actors == count
            assert round(shares.gpus * 10_000) * count <= 10_000
    assert plan(Resources(), 16, [{"CPU": 64.0, "GPU": 3.0}]).actors == 16
    assert plan(quarter, 16, FOUR_GPUS).bundles("10.0.0.1").bundles == [
        {"node:10.0.0.1": 0.001},
        *[{"CPU": 1.0, "GPU": 0.25}] * 16,
    ]


@pytest.mark.parametrize(
    ("resources", "nodes", "words"),
    [
        ({"gpus_per_actor": 0.3}, TWO_GPUS, "0.3 of a GPU cannot be shared evenly; write 1/n .* such as 0.3333"),
        ({"gpus_per_actor": 1.5}, TWO_GPUS, "cannot be shared evenly"),
        ({"gpus_per_actor": -1}, TWO_GPUS, "cannot be shared evenly"),
        ({"gpus_per_actor": 0.25}, LAPTOP, "no node has 1 CPUs and 0.25 GPUs"),
        ({"cpus_per_actor": 4}, LAPTOP, "no node has 4 CPUs"),
        ({"cpus_per_actor": 0}, LAPTOP, "needs a share"),
        (
            {"clients_per_actor": 1},
            LAPTOP,
            "need 16 actors .* room for 2 .* raise clients_per_actor to 8",
        ),
        ({"clients_per_actor": 1, "gpus_per_actor": 0.25}, TWO_GPUS, "raise clients_per_actor to 2"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    resources: dict[str, float], nodes: list[dict[str, float]], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        plan(Resources.model_validate(resources), 16, nodes)


def test_clients_are_dealt_out_largest_first() -> None:
    costs = dict(enumerate([5.0, 9.0, 1.0, 4.0, 4.0, 1.0]))
    hosted = assign(costs, 3)
    assert sorted(client for actor in hosted for client in actor) == [0, 1, 2, 3, 4, 5]
    assert sorted(sum(costs[c] for c in actor) for actor in hosted) == [7, 8, 9]
    assert assign(costs, 3) == hosted
    assert all(assign(costs, 6))


def test_stacks_are_never_divided() -> None:
    assert assign(dict.fromkeys(range(7), 1.0), 2, stack=3) == [[0, 1, 2, 6], [3, 4, 5]]
    assert plan(Resources(), 16, [{"CPU": 64.0}], stack=4).actors == 4
    assert plan(Resources(clients_per_actor=8), 16, LAPTOP, stack=4).actors == 2
    assert plan(Resources(clients_per_actor=16), 16, LAPTOP, stack=5).actors == 1
    with pytest.raises(UserError, match="clients_per_actor: 6 would divide stacks of 4 clients"):
        plan(Resources(clients_per_actor=6), 16, LAPTOP, stack=4)
