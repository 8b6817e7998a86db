"""Client actors on nodes that are lost before their actors have started, or that cannot start them."""

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster
from ray.exceptions import NodeDiedError, ObjectReconstructionFailedError, OwnerDiedError
from ray.util import placement_group_table
from ray.util.placement_group import placement_group

from actors import crew
from actors.placement import Plan

TWO = Plan(2, 1, 0, 1)
# A node that is silent for four seconds is lost.
HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 8,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A node of one CPU, to which others can be added."""
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": HEALTH}
    made = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def lives(actor: Any) -> bool:
    try:
        ray.get(actor.__ray_ready__.remote(), timeout=60)
    except crew.LOST:
        return False
    return True


@pytest.mark.parametrize("error", [NodeDiedError, ObjectReconstructionFailedError, OwnerDiedError])
def test_a_result_that_is_lost_with_its_node_is_a_loss_like_its_actor(error: type[Exception]) -> None:
    assert issubclass(error, crew.LOST)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_that_is_lost_while_its_actor_starts_costs_no_other_actor(cluster: Cluster) -> None:
    other = cluster.add_node(num_cpus=1)
    group = placement_group([{"node:__internal_head__": 0.001}, {"CPU": 1}, {"CPU": 1}], strategy="SPREAD")
    ray.get(group.ready())
    hired = crew.hire(TWO, group)
    nodes = placement_group_table(group)["bundles_to_node_id"]
    gone = next(place for place in range(2) if nodes[place + 1] == other.node_id)
    sound = hired[1 - gone]
    cluster.remove_node(other, allow_graceful=False)
    ray.kill(hired[gone])  # its process outlives the node that is simulated here
    crew.salvage(hired, TWO, group)
    assert len(crew.placed(TWO, group)) == 2, "Ray does not know yet that the node is lost: another one starts there"
    left = crew.hire(TWO, group)
    assert left[1 - gone] == sound
    assert left[gone] is None

    coming = crew.Newcomers(lambda actor: actor.__ray_ready__.remote())
    assert crew.fill(left, coming, TWO, group) == coming.starting == {}  # there is no node for it
    another = cluster.add_node(num_cpus=1)
    until(lambda: crew.fill(left, coming, TWO, group) or coming.starting)
    cluster.remove_node(another, allow_graceful=False)
    until(lambda: len(crew.placed(TWO, group)) == 1)
    cluster.add_node(num_cpus=1)  # Ray may start there what it could not start before
    until(
        lambda: [place for place, (actor, _) in crew.fill(left, coming, TWO, group).items() if lives(actor)] == [gone]
    )
    assert lives(sound)


def _fails(*_: object) -> float:
    return 1 / 0


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_an_actor_that_cannot_start_costs_its_place_and_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a node that cannot install or run our code: when a trial begins, and when its node joins."""
    made, failing = Plan(2, 0.5, 0, 1), SimpleNamespace(__ray_ready__=ray.remote(num_cpus=0)(_fails))
    with monkeypatch.context() as then:
        new = crew._new
        then.setattr(crew, "_new", lambda plan, group, place: failing if place else new(plan, group, place))
        later: dict[int, float] = {}
        hired = crew.hire(made, None, later)
        assert [actor is not None for actor in hired] == [True, False]
        assert later.keys() == {1}
        then.setattr(crew, "_new", lambda plan, group, place: failing)
        with pytest.raises(ZeroDivisionError):
            crew.hire(made, None)
    newcomers = crew.Newcomers(lambda actor: actor.__ray_call__.remote(_fails))
    while not (crew.fill(hired, newcomers, made, None) or newcomers.later):
        time.sleep(0.1)
    assert newcomers.later.keys() == {1}
    assert crew.fill(hired, newcomers, made, None) == newcomers.starting == {}, "it is not tried again at once"
    newcomers.later[1], newcomers.begin = 0.0, lambda actor: actor.__ray_call__.remote(lambda self: "here")
    while not (found := crew.fill(hired, newcomers, made, None)):
        time.sleep(0.1)
    assert {place: said for place, (_, said) in found.items()} == {1: "here"}
    crew.end([hired[0], found[1][0]])


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_an_actor_that_is_lost_while_it_starts_is_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with its node, where another node has taken its place before Ray found out."""
    made, new = Plan(2, 0.5, 0, 1), crew._new

    def lost(plan: Plan, group: None, place: int) -> Any:
        actor = new(plan, group, place)
        if place:
            ray.kill(actor)
        return actor

    coming = crew.Newcomers(lambda actor: actor.__ray_ready__.remote())
    with monkeypatch.context() as then:
        then.setattr(crew, "_new", lost)
        hired = crew.hire(made, None, coming.later)
    assert [actor is not None for actor in hired] == [True, False]
    assert coming.later == {}
    assert crew.fill(hired, coming, made, None).keys() | coming.starting.keys() == {1}
    crew.end([hired[0]])
    coming.end()
