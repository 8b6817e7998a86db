"""Embedding rows that batches touch now and then."""

from typing import Any

import numpy as np
import pytest
import torch

from fedtext.layout import TABLE, Layout
from fedtext.methods.state import Tensors
from fedtext.runtime.compiled import compile_problem
from fedtext.training.config import SGD, Adam, AdamW
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace
from fedtext.training.tables import TouchedRows
from tests import tiny
from tests.loops import nonempty

ROWS, STEPS, LR = 6, 40, 0.3


@pytest.mark.parametrize("momentum", [0.0, 0.01, 0.9, 0.999999])
def test_rows_make_the_steps_they_missed(momentum: float) -> None:
    """Against torch's own optimizer of the whole table. 0.01^k is no number any more before the steps are over."""
    rng = np.random.default_rng(0)
    stack = Stack(Layout({TABLE: (ROWS, 2)}), [ROWS], Workspace(torch.device("cpu"), torch.float64))
    dense = torch.from_numpy(rng.normal(size=(ROWS, 2))).requires_grad_()
    stack.tensors(0)[TABLE].copy_(dense.detach())
    theirs, ours = torch.optim.SGD([dense], lr=LR, momentum=momentum), TouchedRows(stack, LR, momentum)
    for turn in range(2):  # the second one starts anew, and knows how far the first one looked ahead
        ours.reset()
        theirs.state.clear()
        for _ in nonempty(range(STEPS * (1 + 3 * turn))):
            words = np.sort(rng.choice(ROWS - 1, 2, replace=False))  # the last row is never touched
            gradient = torch.from_numpy(rng.normal(size=(2, 2)))
            assert torch.allclose(ours.begin(range(1), [words]), dense[words], rtol=0, atol=1e-12)
            ours.step(range(1), gradient)
            dense.grad = torch.zeros_like(dense).index_copy(0, torch.from_numpy(words), gradient)
            theirs.step()
        ours.finish()
        assert torch.allclose(stack.tensors(0)[TABLE], dense, rtol=0, atol=1e-12)
        velocity = theirs.state[dense].get("momentum_buffer", None) if momentum else None
        if velocity is not None:
            assert torch.allclose(ours.state(0)["momentum_buffer"], velocity, rtol=0, atol=1e-12)


def theirs(config: SGD | Adam, named: dict[str, torch.Tensor], scales: dict[str, float]) -> torch.optim.Optimizer:
    """Torch's optimizer, with a group of parameters for each rate."""
    groups: dict[float, list[torch.Tensor]] = {}
    for name, leaf in named.items():
        groups.setdefault(config.lr * scales.get(name, 1), []).append(leaf)
    parameters = [{"params": leaves, "lr": rate} for rate, leaves in groups.items()]
    if isinstance(config, SGD):
        return torch.optim.SGD(parameters, lr=config.lr, momentum=config.momentum)
    if isinstance(config, AdamW):
        return torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay)
    return torch.optim.Adam(parameters, lr=config.lr)


RULES = {"clip_norm": 0.8, "schedule": "linear"}


@pytest.mark.parametrize(
    "config",
    [
        *(AdamW(lr=0.05, weight_decay=0.3), AdamW(lr=0.05, weight_decay=0.3, **RULES), AdamW(lr=0.05, weight_decay=0)),
        *(Adam(lr=0.05, **RULES), SGD(lr=0.05, **RULES), SGD(lr=0.05, clip_norm=0.8), SGD(schedule="linear")),
    ],
    ids=repr,
)
@pytest.mark.parametrize("scales", [{}, {"v": 4.0}, {"v": 4.0, "w": 4.0}], ids=["", "one faster", "both faster"])
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
def test_steps_are_torchs_own(config: SGD | Adam, cut: bool, scales: dict[str, float]) -> None:
    """With weight decay, which moves rows that no batch has, a norm and a schedule; of two clients with unequally much
    to do, side by side where tables are cut, until the first is on its own."""
    rng = np.random.default_rng(1)
    layout = Layout({TABLE: (ROWS, 2), "w": (3,), "v": (2,)})
    stack = Stack(layout, [ROWS, ROWS], Workspace(torch.device("cpu"), torch.float64))
    optimizer, plans = LocalOptimizer(config, stack, config.lr, cut, scales=scales), (7, 4)
    optimizer.plan(plans)
    expected = []
    for client in range(2):
        for tensor in stack.tensors(client).values():
            tensor.copy_(torch.from_numpy(rng.normal(size=tensor.shape)))
        expected.append({name: t.clone().requires_grad_() for name, t in stack.tensors(client).items()})
    rules = [theirs(config, leaves, scales) for leaves in expected]
    rates = [group["lr"] for group in rules[0].param_groups]
    for step in range(7):
        words = [np.sort(rng.choice(ROWS - 1, 2, replace=False)) for _ in range(2)]
        slopes = torch.from_numpy(rng.normal(size=(2, 2, 2)))
        there = [client for client in range(2) if step < plans[client]]
        for clients in [range(len(there))] if cut else [range(c, c + 1) for c in there]:
            given = optimizer.begin(clients, [words[c] for c in clients])
            loss = (given["w"] ** 3).sum() + (given["v"] ** 2).sum()
            for place, client in enumerate(clients):
                table = given[TABLE][place] if len(clients) > 1 else given[TABLE]
                loss = loss + (slopes[client] * (table if cut else table[words[client]])).sum()
            optimizer.step(clients, loss)
        for client in there:
            leaves, rule = expected[client], rules[client]
            rule.zero_grad()
            loss = (leaves["w"] ** 3).sum() + (leaves["v"] ** 2).sum()
            (loss + (slopes[client] * leaves[TABLE][words[client]]).sum()).backward()
            if config.clip_norm:
                torch.nn.utils.clip_grad_norm_(leaves.values(), config.clip_norm)
            if config.schedule == "linear":
                for group, rate in zip(rule.param_groups, rates, strict=True):
                    group["lr"] = rate * (1 - step / plans[client])
            rule.step()
    optimizer.finish()
    for client, leaves in nonempty(enumerate(expected)):
        for name, tensor in nonempty(stack.tensors(client).items()):
            assert torch.allclose(tensor, leaves[name], rtol=0, atol=1e-12), (client, name)


def test_what_is_remembered_of_a_client_is_named_by_its_parameters() -> None:
    """Adam counts steps once, unless some parameters stand still in some steps."""

    def kept(config: SGD | Adam, **how: Any) -> set[str]:
        layout = Layout({TABLE: (ROWS, 2), "a": (3,), "b": (1,)})
        stack = Stack(layout, [ROWS, ROWS], Workspace(torch.device("cpu"), torch.float64))
        optimizer = LocalOptimizer(config, stack, config.lr, **how)
        assert optimizer.state(0).keys() == optimizer.state(1).keys()
        return set(optimizer.state(0))

    momentum = {f"{name}/momentum_buffer" for name in ("a", "b", "tables")}
    assert kept(SGD()) == momentum
    assert kept(SGD(), task_of={"a": 0}.get) == momentum
    both = {f"{name}/{kind}" for name in ("a", "b", "tables") for kind in ("exp_avg", "exp_avg_sq")} | {"tables/step"}
    assert kept(Adam()) == both | {"step"}
    assert kept(Adam(), moving={TABLE, "a", "b"}) == both | {"step"}
    assert kept(Adam(), task_of={"a": 0}.get) == both | {"a/step", "b/step"}
    assert kept(Adam(), moving={TABLE, "a"}) == both | {"a/step"}
    frozen = {name for name in both if not name.startswith("tables/")}
    assert kept(Adam(embedding_lr=0)) == frozen | {"step"}
    assert kept(Adam(), moving={"a", "b"}) == frozen | {"step"}


def still(layout: dict[str, tuple[int, ...]], config: SGD | Adam, **how: Any) -> tuple[LocalOptimizer, Any]:
    """An optimizer of one client whose parameters are zeros, and these."""
    stack = Stack(Layout(layout), [ROWS], Workspace(torch.device("cpu"), torch.float64))
    for tensor in stack.tensors(0).values():
        tensor.zero_()
    return LocalOptimizer(config, stack, config.lr, **how), stack.tensors(0)


@pytest.mark.parametrize(
    ("config", "far"),
    [
        (SGD(lr=0.1, momentum=0.0), {"w": 0.5, "v": 1.5, TABLE: 0.5}),
        (SGD(lr=0.1, momentum=0.5, embedding_lr=0.02), {"w": 0.80625, "v": 2.41875, TABLE: 0.16125}),
        (SGD(lr=0.1, momentum=0.5, embedding_lr=0.02, schedule="linear"), {"w": 0.43875, "v": 1.31625, TABLE: 0.08775}),
    ],
    ids=repr,
)
def test_a_corrected_gradient_moves_each_parameter_as_far_as_lr_sums_says(config: SGD, far: dict[str, float]) -> None:
    """Five steps along gradients of ones, which a correction makes of whatever they are: at momentum 0.5 the velocity
    is 1, 1.5, 1.75, 1.875, 1.9375, and a linear schedule takes 1, 0.8, 0.6, 0.4, 0.2 of it. Two tables lie side by
    side, one parameter moves with three times the rate, and another does not move."""
    private = "embedding_private.weight"
    moving = {"w": 1.0, "v": 0.5, TABLE: 1.0, private: 2.0}
    layout = {TABLE: (ROWS, 2), private: (ROWS, 3), "fixed": (2,), "w": (3,), "v": (1,)}
    optimizer, parameters = still(layout, config, moving=moving, scales={"v": 3.0})
    optimizer.plan([5])

    def ones(gradients: Tensors) -> Tensors:
        assert gradients.keys() == moving.keys()
        return Tensors({name: torch.full_like(tensor, moving[name]) for name, tensor in gradients.items()})

    for _ in range(5):
        given = optimizer.begin(range(1), [np.arange(ROWS)])
        optimizer.step(range(1), torch.stack([7 * tensor.sum() for tensor in given.values()]).sum(), ones)
    optimizer.finish()
    sums = optimizer.lr_sums(moving, 5)
    assert sums == pytest.approx({**far, private: far[TABLE]})
    for name, tensor in nonempty(parameters.items()):
        moved = -moving[name] * sums[name] if name in moving else 0.0
        assert torch.allclose(tensor, torch.full_like(tensor, moved), rtol=0, atol=1e-12), name
    assert LocalOptimizer(Adam(), optimizer.stack, 0.1).lr_sums(moving, 5) == {}


def test_a_parameter_that_a_loss_does_not_read_goes_on_by_its_momentum() -> None:
    optimizer, parameters = still({TABLE: (ROWS, 2), "w": (3,), "unread": (2,)}, SGD(lr=0.1, momentum=0.5))
    for step in range(2):
        given = optimizer.begin(range(1), [np.array([1])])
        assert given[TABLE].shape == (ROWS, 2), "the whole table unless it is cut"
        optimizer.step(range(1), given["w"].sum() + (given["unread"].sum() if step == 0 else 0))
    assert parameters["w"].tolist() == pytest.approx([-0.25] * 3)
    assert parameters["unread"].tolist() == pytest.approx([-0.15] * 2)


def test_a_batch_is_of_the_first_task_unless_another_is_named() -> None:
    optimizer, _ = still({TABLE: (ROWS, 2), "a": (3,), "b": (1,)}, SGD(), task_of={"a": 0, "b": 1}.get)
    for task, moving in (({}, "a"), ({"task": 0}, "a"), ({"task": 1}, "b")):
        given = optimizer.begin(range(1), [np.array([1])], **task)
        assert {name for name in ("a", "b") if given[name].requires_grad} == {moving}


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize(("engine", "stack"), [("reference", 1), ("cells", 1), ("cells", 3)])
def test_a_frozen_table_stays_and_everything_else_learns_as_it_would(optimizer: str, engine: str, stack: int) -> None:
    """Beside a table whose steps are too small to show in float32."""

    def trained(embedding_lr: float) -> tiny.Finished:
        options = {"name": optimizer, "lr": 0.05, "embedding_lr": embedding_lr, "persist": True}
        return tiny.Finished(
            "fedavg", training=tiny.TRAINING | {"optimizer": options, "engine": engine, "stack": stack}
        )

    frozen, slow = trained(0), trained(1e-30)
    before = frozen.layout.views(frozen.before)
    assert frozen.state[TABLE].tobytes() == before[TABLE].tobytes()
    for name, tensor in nonempty(frozen.state.items()):
        np.testing.assert_array_equal(tensor, slow.state[name], err_msg=name)
        assert name == TABLE or (tensor != before[name]).any(), name


@pytest.mark.parametrize("config", [SGD(lr=0.05), Adam(lr=0.05), AdamW(lr=0.05, weight_decay=0.3, clip_norm=0.1)])
@pytest.mark.parametrize(("cut", "native"), [(False, False), (True, False), (True, True)])
def test_of_two_tables_one_moves_as_if_it_were_alone(config: SGD | Adam, cut: bool, native: bool) -> None:
    """The other has a gradient too, and is left as it is."""
    if native and (problem := compile_problem()):
        pytest.skip(problem)

    def trained(widths: dict[str, int]) -> dict[str, torch.Tensor]:
        layout = Layout({name: (ROWS, width) for name, width in widths.items()} | {"w": (3,)})
        stack = Stack(layout, [ROWS], Workspace(torch.device("cpu"), torch.float64))
        for tensor in stack.tensors(0).values():
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape).double() / 7 - 1)
        optimizer = LocalOptimizer(config, stack, config.lr, cut, moving={TABLE, "w"}, native=native)
        for _ in range(3):
            given = optimizer.begin(range(1), [np.array([1, 3])])
            optimizer.step(range(1), torch.stack([tensor.square().sum() for tensor in given.values()]).sum())
        optimizer.finish()
        return {name: tensor.clone() for name, tensor in stack.tensors(0).items()}

    other = "embedding_private.weight"
    alone, both = trained({TABLE: 2}), trained({TABLE: 2, other: 3})
    assert torch.equal(both[other], torch.arange(ROWS * 3).reshape(ROWS, 3).double() / 7 - 1)
    for name in nonempty(alone):
        assert torch.allclose(both[name], alone[name], rtol=0, atol=1e-12), name


@pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())
def test_a_step_of_native_adam_is_torchs_in_float32_too() -> None:
    """The first steps are the most sensitive to 1 - beta2, which float32 gives to five digits only."""
    grad_UD = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
    stack = Stack(Layout({TABLE: (ROWS, 2)}), [ROWS], Workspace(torch.device("cpu"), torch.float32))
    table_ND = stack.tensors(0)[TABLE]
    table_ND.zero_()
    optimizer = LocalOptimizer(Adam(lr=0.001), stack, 0.001, cut=True, native=True)
    theirs_ND = torch.nn.Parameter(torch.zeros(ROWS, 2, dtype=torch.float64))
    reference = torch.optim.Adam([theirs_ND], lr=0.001)
    for _ in range(3):
        given = optimizer.begin(range(1), [np.array([1, 3])])
        optimizer.step(range(1), (given[TABLE] * grad_UD).sum())
        theirs_ND.grad = torch.zeros(ROWS, 2, dtype=torch.float64)
        theirs_ND.grad[[1, 3]] = grad_UD.double()
        reference.step()
    optimizer.finish()
    np.testing.assert_allclose(table_ND.numpy(), theirs_ND.detach().numpy(), rtol=5e-7)
