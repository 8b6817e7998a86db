"""Whole blocks of transformers in C, with dropout, and what they keep."""

import copy
import gc
import pickle
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedtext.models import adapted
from fedtext.models.adapters import Adapter
from fedtext.models.batch import Batch
from fedtext.models.checkpointed import layers
from fedtext.models.fixed import blocks_of
from fedtext.models.native_block import into_c
from fedtext.models.native_products import products_in_c
from fedtext.models.transformer import TransformerClassifier, TransformerEncoder
from fedtext.models.unpadded import Places, implementation
from fedtext.runtime.compiled import compile_problem
from tests.checkpoints import SCRATCH, from_checkpoint, saved
from tests.compilers import printed_by_width, x86
from tests.fedtext.models.native_blocks import EVERY, LENGTHS, Rounded, block, in_c, inputs, network, run
from tests.loops import nonempty

pytestmark = pytest.mark.skipif(bool(compile_problem()), reason=compile_problem())


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("further", [True, False], ids=["", "first"])
@pytest.mark.parametrize("modules", [EVERY, ["query", "value"], ["key"], ["down"]], ids=str)
@pytest.mark.parametrize("architecture", ["bert", "distilbert", "gpt2"])
def test_a_block_and_its_gradients_are_those_of_the_package(
    architecture: str, modules: list[str], further: bool, count: int
) -> None:
    made, given = block(architecture, layers=count, modules=modules), inputs(further)
    wanted, found = [*made.parameters(), *([given] if further else [])], []
    for native in nonempty([False, True]):
        outputs = run(made, given, native)
        found.append((outputs, *torch.autograd.grad(outputs.sin().sum(), wanted)))
        assert in_c(outputs) == native
        with torch.no_grad():
            assert torch.equal(run(made, given, native), outputs), "without gradients to follow"
    for got, want in nonempty(zip(*found, strict=True)):
        assert torch.allclose(got, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("architecture", ["bert", "gpt2"])
def test_blocks_without_gradients_are_left_out(architecture: str) -> None:
    """Those before the first that moves have no gradients, and the others have theirs."""
    made, given, found = block(architecture, layers=3), inputs(requires_grad=False), []
    wanted = [p for name, p in made.named_parameters() if name.startswith("blocks.1.")]
    for parameter in made.parameters():
        parameter.requires_grad_(any(parameter is each for each in wanted))
    for native in nonempty([False, True]):
        found.append(torch.autograd.grad(run(made, given, native).sin().sum(), wanted))
    for got, want in nonempty(zip(*found, strict=True)):
        assert torch.allclose(got, want, rtol=1e-11, atol=1e-11)


def test_blocks_that_are_not_whole_are_the_packages_among_the_others() -> None:
    made, given, found = block("bert", layers=3, dropout=0.5), inputs(), []
    made.eval()
    made.blocks[1].train()
    for native in nonempty([False, True]):
        outputs = run(made, given, native)
        found.append((outputs, *torch.autograd.grad(outputs.sum(), [given])))
    assert in_c(outputs)
    for got, want in nonempty(zip(*found, strict=True)):
        assert torch.allclose(got, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "gpt2"])
def test_gradients_are_those_of_what_dropout_left(architecture: str) -> None:
    """Each call draws the same, so that differences of outputs show them."""
    made, given = block(architecture, rate=0.3), inputs()
    assert not torch.equal(run(made, given), run(made.eval(), given))
    made.train()
    factors = dict(made.named_parameters())

    def outputs(given: Tensor, *values: Tensor) -> Tensor:
        torch.manual_seed(7)
        places = Places.of(LENGTHS, 5, given.device, in_c=True)
        with products_in_c(True):
            found: Tensor = torch.func.functional_call(
                made, dict(zip(factors, values, strict=True)), (given[None],), {"places": places}
            )
        return found

    assert torch.autograd.gradcheck(outputs, (given, *factors.values()), fast_mode=True)


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "gpt2"])
def test_dropout_is_where_the_package_has_it(architecture: str) -> None:
    """The mean over many draws, and its spread, are those of the package's."""
    made, given, count = block(architecture, rate=0.5, modules=["query"]), inputs(requires_grad=False), 3000
    places, moments = Places.of(LENGTHS, 5, given.device, in_c=True), []
    for native in nonempty([False, True]):
        torch.manual_seed(3)
        with torch.no_grad(), products_in_c(native):
            many = torch.stack([made(given[None], places=places)[0] for _ in range(count)])
        moments.append((many.mean(0), many.std(0)))
    (mean, spread), (other, beside) = moments
    assert spread.mean() > 0.1
    assert ((mean - other).abs() / spread).mean() < 3 * (2 / count) ** 0.5
    assert torch.allclose(spread, beside, rtol=0.15)


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "gpt2"])
def test_in_bfloat16_products_with_weights_alone_are_rounded(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the package's blocks in 64 bits, whose layers round in the same way."""
    made, given, found = block(architecture, layers=2, modules=["query", "down"]).float(), inputs().float(), []
    exact, others = copy.deepcopy(made).double(), given.detach().double().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        outputs = run(made, given)
    assert in_c(outputs)
    assert outputs.dtype == torch.float32
    found.append((outputs, *torch.autograd.grad(outputs.sin().sum(), [given, *made.parameters()])))
    monkeypatch.setattr(adapted, "linear", lambda x, w, b=None: linear(x, w) if b is None else Rounded.apply(x, w, b))
    outputs = run(exact, others, native=False)
    found.append((outputs, *torch.autograd.grad(outputs.sin().sum(), [others, *exact.parameters()])))
    for got, want in nonempty(zip(*found, strict=True)):
        # What is rounded differs in its last bits, and now and then falls on the other side.
        assert (got - want).norm() < 0.002 * want.norm()


def test_what_is_not_computed_in_c_is_left_to_the_package() -> None:
    plain, given = block("bert").float(), inputs().float()
    assert in_c(run(plain, given))
    with torch.autocast("cpu", torch.bfloat16):
        assert in_c(run(plain, given))
        assert not in_c(run(copy.deepcopy(plain).double(), given.double()))
    assert not in_c(run(block("bert", residual=True).float(), given))
    dropping = block("bert", modules=["query"], dropout=0.5).float()
    assert not in_c(run(dropping, given))
    assert in_c(run(dropping.eval(), given))


def test_blocks_of_other_functions_stay_the_packages() -> None:
    keys = SCRATCH | {"architecture": "bert", "adapter": Adapter().model_dump()}
    made = layers(TransformerClassifier.model_validate(keys), True, implementation())
    for changed in nonempty([{"hidden_act": "relu"}, {"is_decoder": True}]):
        config = copy.copy(made.config)
        config.update(changed)
        assert into_c(made.encoder.layer, config) is made.encoder.layer


@pytest.mark.parametrize("architecture", ["bert", "gpt2"])
def test_names_and_copies_are_those_of_the_package(architecture: str) -> None:
    made, given = network(architecture, layers=2), inputs()
    (inner,), names = blocks_of(made.run.__self__), {name.rpartition(".")[2] for name in made.state_dict()}
    assert len(inner.blocks) == 2
    assert {"lora_A", "lora_B", "weight", "bias"} == names
    assert not [name for name in made.state_dict() if "blocks" in name]
    expected = run(inner, given)
    for other in nonempty([copy.deepcopy(made), pickle.loads(pickle.dumps(made))]):
        (copied,) = blocks_of(other.run.__self__)
        assert torch.equal(run(copied, given), expected)
        for parameter in nonempty(list(other.parameters())):
            nn.init.normal_(parameter)
        assert not torch.equal(run(copied, given), expected)
    assert torch.equal(run(inner, given), expected)


def test_a_batch_is_freed_without_the_garbage_collector() -> None:
    made = block("bert")
    gc.collect()
    gc.disable()
    try:
        outputs = run(made, inputs())
        node = weakref.ref(outputs)
        torch.autograd.grad(outputs.sum(), list(made.parameters()))
        del outputs
        assert node() is None
        found = [each for each in gc.get_objects() if type(each).__name__ == "_InCBackward"]
        assert not found
    finally:
        gc.enable()


def test_the_outputs_of_a_text_do_not_depend_on_the_others() -> None:
    keys = SCRATCH | {"architecture": "bert", "dropout": 0.0, "adapter": {"lora": {"rank": 2}}}
    torch.manual_seed(5)
    encoder = TransformerEncoder(TransformerClassifier.model_validate(keys))
    embedding = nn.Embedding(9, 8).requires_grad_(False)
    tokens, lengths = torch.tensor([[1, 2, 3, 4, 8], [5, 6, 0, 0, 0]]), torch.tensor([5, 2])
    both = encoder(embedding, Batch(tokens, lengths, torch.tensor([0, 1]), native=True))
    alone = encoder(embedding, Batch(tokens[1:, :2], lengths[1:], torch.tensor([1]), native=True))
    assert torch.equal(both[1:], alone)


def test_blocks_of_a_roberta_are_computed_in_c_too(tmp_path: Path) -> None:
    folder, adapter = saved("roberta", tmp_path), {"lora": {"rank": 2, "modules": ["query", "value", "down"]}}
    torch.manual_seed(5)
    encoder = TransformerEncoder(from_checkpoint(folder, dropout=0.0, adapter=adapter)).double()
    embedding = nn.Embedding(9, 8).requires_grad_(False).double()
    tokens, lengths = torch.tensor([[1, 2, 3, 4, 8], [5, 6, 0, 0, 0]]), torch.tensor([5, 2])
    found = []
    for native in (False, True):
        encoder.zero_grad()
        encoder(embedding, Batch(tokens, lengths, torch.tensor([0, 1]), native=native)).square().sum().backward()
        found.append({name: parameter.grad.clone() for name, parameter in encoder.named_parameters()})
    assert encoder.whole
    for name, gradient in nonempty(found[0].items()):
        assert torch.allclose(gradient, found[1][name], rtol=1e-9, atol=1e-12), name


BITS = """
import hashlib, torch
from tests.fedtext.models.native_blocks import block, inputs, run
found = hashlib.sha256()
for precision in ("float32", "float64", "bfloat16"):
    dtype = torch.float64 if precision == "float64" else torch.float32
    for architecture in ("bert", "gpt2"):
        made, given = block(architecture, rate=0.3).to(dtype), inputs().detach().to(dtype).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            out = run(made, given)
        for tensor in (out, *torch.autograd.grad(out.square().sum(), [given, *made.parameters()])):
            found.update(tensor.detach().numpy().tobytes())
print(found.hexdigest())
"""


@pytest.mark.slow
@x86
def test_its_bits_do_not_depend_on_the_width_of_vectors(tmp_path: Path) -> None:
    assert len(printed_by_width(BITS, tmp_path)) == 1
