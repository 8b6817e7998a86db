"""Plans: how clients become actors, and what is refused before anything starts."""

import math
import random
from typing import Any

import pytest

from actors.placement import Plan, assign, plan
from fedtext.config.sections import Resources
from fedtext.errors import UserError
from tests.loops import nonempty

LAPTOP = [{"CPU": 2.0}]
FOUR_GPUS = [{"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 2.0}]
EIGHT_GPUS = [{"CPU": 16.0, "GPU": 8.0}]
ONE_GPU = [{"CPU": 4.0, "GPU": 1.0}]
TWO_GPUS = [{"CPU": 16.0, "GPU": 2.0}]


def shape(clients: int, nodes: list[dict[str, float]], cases: int = 1, **changes: Any) -> tuple[int, int, float]:
    """Trials side by side, actors of each, and the share of a GPU that an actor has."""
    stack, concurrent, cohort = changes.pop("stack", 1), changes.pop("concurrent", None), changes.pop("cohort", None)
    made = plan(Resources.model_validate(changes), clients, nodes, stack, cases, concurrent, cohort)
    return made.trials, made.actors, made.gpus


@pytest.mark.parametrize(
    ("clients", "nodes", "changes", "expected"),
    [
        (16, LAPTOP, {}, (1, 2, 0)),
        (1, LAPTOP, {}, (1, 1, 0)),
        (1, LAPTOP, {"cases": 5}, (2, 1, 0)),
        (16, [{"CPU": 64.0}], {}, (1, 16, 0)),
        (16, [{"CPU": 64.0}], {"cases": 4}, (4, 16, 0)),
        (16, [{"CPU": 64.0}], {"cases": 4, "concurrent": 1}, (1, 16, 0)),
        (16, [{"CPU": 64.0}], {"cases": 4, "concurrent": 9}, (4, 16, 0)),
        (16, LAPTOP, {"clients_per_actor": 8}, (1, 2, 0)),
        (16, LAPTOP, {"clients_per_actor": 16, "cases": 3}, (2, 1, 0)),
        (16, LAPTOP, {"cpus_per_actor": 0.5}, (1, 4, 0)),
        (4, [{"CPU": 3.0}, {"CPU": 3.0}], {}, (1, 4, 0)),
        (4, [{"CPU": 3.0}, {"CPU": 3.0}], {"cpus_per_actor": 2}, (1, 2, 0)),  # an actor is on one node
        # 100 clients, 16 CPUs, 8 GPUs: all of them, however many trials there are
        (100, EIGHT_GPUS, {}, (1, 16, 0.5)),
        (100, EIGHT_GPUS, {"stack": 4}, (1, 16, 0.5)),
        (100, EIGHT_GPUS, {"cases": 12}, (2, 8, 0.5)),
        (100, EIGHT_GPUS, {"cases": 12, "stack": 4}, (4, 4, 0.5)),
        (100, EIGHT_GPUS, {"cases": 12, "concurrent": 1}, (1, 16, 0.5)),
        (1000, EIGHT_GPUS, {}, (1, 16, 0.5)),
        # ten of them train in a round: more actors would wait for one another
        (100, EIGHT_GPUS, {"cases": 11, "cohort": 10}, (4, 4, 0.5)),
        (100, EIGHT_GPUS, {"cohort": 10}, (1, 16, 0.5)),
        (1, EIGHT_GPUS, {"cases": 12}, (12, 1, 0.5)),
        (1, EIGHT_GPUS, {}, (1, 1, 1.0)),
        (9, EIGHT_GPUS, {}, (1, 8, 1.0)),  # nine halves would lie on five of them
        (100, ONE_GPU, {}, (1, 4, 0.25)),
        (2, ONE_GPU, {}, (1, 2, 0.5)),
        (100, [{"CPU": 64.0, "GPU": 1.0}], {}, (1, 8, 0.125)),  # no more contexts than that on a GPU
        (100, [{"CPU": 64.0, "GPU": 1.0}], {"gpus_per_actor": 0.0625}, (1, 16, 0.0625)),
        (100, [{"CPU": 64.0, "GPU": 1.0}], {"gpus_per_actor": 0}, (1, 64, 0)),
        (100, ONE_GPU * 8, {}, (1, 32, 0.25)),
        (8, ONE_GPU * 8, {}, (1, 8, 1.0)),
        (100, [{"CPU": 8.0}, *FOUR_GPUS], {}, (1, 16, 0.25)),  # all actors alike: none on the node without GPUs
        (100, [{"CPU": 2.0, "GPU": 8.0}, {"CPU": 6.0, "GPU": 1.0}], {}, (1, 3, 1.0)),
    ],
)
def test_plans(
    clients: int, nodes: list[dict[str, float]], changes: dict[str, Any], expected: tuple[int, int, float]
) -> None:
    assert shape(clients, nodes, **changes) == expected


def placed(made: Plan, nodes: list[dict[str, float]]) -> int:
    """Puts the plan's actors one by one on the node with most room, each on the fullest GPU that has room for it, in
    the ten-thousandths in which Ray counts. Returns how many GPUs then are in use."""
    cpus = [round(1e4 * node["CPU"]) for node in nodes]
    gpus = [[10_000] * int(node.get("GPU", 0)) for node in nodes]
    share = round(1e4 * made.gpus)
    for _ in nonempty(range(made.trials * made.actors)):
        fit = [n for n in range(len(nodes)) if cpus[n] >= round(1e4 * made.cpus)]
        fit = [n for n in fit if not share or any(left >= share for left in gpus[n])]
        assert fit, "more than there is"
        chosen = max(fit, key=lambda n: cpus[n])
        cpus[chosen] -= round(1e4 * made.cpus)
        if share:
            one = min((g for g, left in enumerate(gpus[chosen]) if left >= share), key=lambda g: gpus[chosen][g])
            gpus[chosen][one] -= share
    return sum(left < 10_000 for node in gpus for left in node)


def test_no_plan_takes_more_than_there_is_and_none_leaves_gpus_idle() -> None:
    draw = random.Random(0)
    for _ in range(600):
        node = {"CPU": float(draw.choice([1, 2, 4, 6, 16, 48])), "GPU": float(draw.choice([0, 0, 1, 1, 2, 4, 8]))}
        nodes = [node] * draw.choice([1, 1, 2, 3, 8])
        if node["GPU"] and draw.random() < 0.3:
            nodes = [{"CPU": 4.0, "GPU": 0.0}, *nodes]  # a head
        clients, stack, cases = draw.choice([1, 3, 9, 16, 100, 1000]), draw.choice([1, 1, 4]), draw.randint(1, 30)
        concurrent = draw.choice([None, None, 1, 3])
        made = plan(Resources(), clients, nodes, stack, cases, concurrent)
        said = f"{clients} clients, stacks of {stack}, {cases} cases, at most {concurrent}, on {nodes}: {made}"
        blocks, limit = -(-clients // stack), min(cases, concurrent or cases)
        assert 1 <= made.actors <= blocks, said
        assert 1 <= made.trials <= limit, said
        in_use = placed(made, nodes)
        usable = sum(min(node.get("GPU", 0), node["CPU"]) for node in nodes)
        assert in_use >= made.gpus_in_use, said
        assert in_use >= math.floor(0.7 * min(usable, blocks * limit)), said
        if not usable:
            cpus = sum(node["CPU"] for node in nodes)
            assert made.trials * made.actors >= 0.6 * min(cpus, blocks * limit), said


def test_a_plan_says_what_it_uses() -> None:
    assert plan(Resources(), 100, EIGHT_GPUS, 4, 12).sentence(EIGHT_GPUS) == (
        "4 trials side by side, each with 4 client actors of 1 CPU and 0.5 GPUs: 16 of 16 CPUs and 8 of 8 GPUs "
        "on 1 node"
    )
    assert plan(Resources(), 1, LAPTOP).sentence(LAPTOP) == (
        "one trial at a time, with 1 client actor of 1 CPU: 1 of 2 CPUs on 1 node"
    )


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
    assert plan(Resources(), 16, [{"CPU": 64.0, "GPU": 3.0}]).gpus == 0.1666
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
        ({"gpus_per_actor": 0.25}, LAPTOP, "no node has 1 CPU and 0.25 GPUs"),
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
