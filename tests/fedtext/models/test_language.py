"""The language model: our layers and softmax compute what torch's do, in float64; what is counted, and what is not."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional

from fedtext.corpora.types import TokenSet
from fedtext.evaluation.words import Predicted, together
from fedtext.layout import Layout
from fedtext.models import softmax
from fedtext.models.batch import Batch
from fedtext.models.language import RecurrentLanguageModel, RecurrentNetwork, Score, WordEmbedding
from fedtext.runtime.compiled import compile_problem
from fedtext.training.batches import Assembler, Texts
from fedtext.training.config import SGD
from fedtext.training.optimizer import LocalOptimizer
from fedtext.training.stack import Stack, Workspace
from tests.loops import nonempty

VOCABULARY, CPU = 30, torch.device("cpu")
LENGTHS = {"mixed": [5, 2, 9, 9, 3, 2], "equal": [4, 4, 4], "shortest": [2, 2], "one": [7], "one shortest": [2]}


def model(tied: bool = True, layers: int = 1, dropout: float = 0, kind: str = "gru_lm") -> RecurrentNetwork:
    """A model; with ``kind`` lstm_lm it has a projection, and is wider than its embedding."""
    torch.manual_seed(0)
    wide = kind == "lstm_lm"
    dim, hidden = 6 if tied and not wide else 5, 8 if wide else 6
    keys: dict[str, Any] = {"name": kind, "embedding": WordEmbedding(dim=dim), "hidden": hidden, "projection": wide}
    config = RecurrentLanguageModel(**keys, layers=layers, tied=tied, dropout=dropout)
    network = RecurrentNetwork(config, VOCABULARY, nn.Embedding(VOCABULARY, dim)).double()
    with torch.no_grad():
        network.embedding.weight.uniform_(-0.5, 0.5)
        network.head.bias.normal_()
    return network


def batch(lengths: list[int], own: bool, padding: int = 0, chosen: slice = slice(None)) -> Batch:
    tokens_T = np.random.default_rng(0).integers(0, VOCABULARY, sum(lengths), np.int32)
    texts = Texts(TokenSet(tokens_T, np.cumsum([0, *lengths]), np.zeros(len(lengths), np.int64)), VOCABULARY)
    texts.padded_NT[np.arange(max(lengths)) >= np.array(lengths)[:, None]] = padding
    assembler = Assembler(1 if own else None, cut=False, device=CPU, ahead=True)
    return assembler.single(texts, np.arange(len(lengths))[chosen])[0]


def outcome(network: RecurrentNetwork, given: Batch) -> tuple[Score, dict[str, Tensor]]:
    """The score and every parameter's gradient."""
    score = network(given)
    named = dict(network.named_parameters())
    return score, dict(zip(named, torch.autograd.grad(score.loss, list(named.values())), strict=True))


def assert_equal(got: Any, expected: Any, rtol: float = 1e-9) -> None:
    assert got[0].loss.item() == pytest.approx(expected[0].loss.item(), rel=rtol)
    assert got[0].nats_S.sum().item() == pytest.approx(expected[0].nats_S.sum().item(), rel=rtol)
    assert len(got[0].nats_S) == len(expected[0].nats_S)
    assert set(got[1]) == set(expected[1])
    for name, gradient in nonempty(expected[1].items()):
        assert torch.allclose(got[1][name], gradient, rtol=rtol, atol=1e-12), name


@pytest.fixture(params=[100, 1_000_000], ids=["chunks of 3", "one chunk"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(softmax.CHUNK, "cpu", request.param)


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(("kind", "layers"), [("gru_lm", 1), ("gru_lm", 2), ("lstm_lm", 1), ("lstm_lm", 2)])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_cells_equal_the_reference(tied: bool, kind: str, layers: int, lengths: list[int]) -> None:
    network = model(tied, layers, kind=kind)
    expected = outcome(network, batch(lengths, own=False))
    assert len(expected[0].nats_S) == sum(lengths) - len(lengths)
    assert_equal(outcome(network, batch(lengths, own=True)), expected)
    network.eval()
    with torch.no_grad():
        ours, theirs = (network(batch(lengths, own)) for own in (True, False))
    assert ours.loss.item() == pytest.approx(expected[0].loss.item(), rel=1e-9)
    assert ours.nats_S.sum().item() == pytest.approx(expected[0].nats_S.sum().item(), rel=1e-9)
    assert torch.equal(ours.ranks_S.sort().values, theirs.ranks_S.sort().values)


@pytest.mark.parametrize("kind", ["gru_lm", "lstm_lm"])
@torch.no_grad()
def test_a_step_goes_on_from_the_states_of_the_one_before(kind: str) -> None:
    network, tokens_BT = model(layers=2, kind=kind).eval(), torch.tensor([[3, 7, 7, 20], [2, 9, 1, 0]])
    whole_BTV, states = network.following(tokens_BT), None
    for place in range(4):
        logits_BV, states = network.step(tokens_BT[:, place], states)
        assert torch.allclose(logits_BV, whole_BTV[:, place], rtol=1e-12)
    assert whole_BTV.shape == (2, 4, VOCABULARY)


def test_the_published_model_has_the_published_number_of_parameters() -> None:
    """Reddi et al. 2020, table 1: 4,050,748 parameters, with 10,004 entries of the vocabulary."""
    keys: dict[str, Any] = {"name": "lstm_lm", "hidden": 670, "projection": True, "tied": False}
    config = RecurrentLanguageModel(embedding=WordEmbedding(dim=96), **keys)
    count = sum(each.numel() for each in RecurrentNetwork(config, 10_004, nn.Embedding(10_004, 96)).parameters())
    assert count - 4 * 670 == 4_050_748, "torch's LSTM has each gate's bias twice"


def test_the_score_is_that_of_every_sentence_by_itself() -> None:
    network, lengths = model(), LENGTHS["mixed"]
    each = [
        network(batch(lengths, own, chosen=slice(text, text + 1))).nats_S.sum().item()
        for text in range(len(lengths))
        for own in (True, False)
    ]
    assert sum(each) / 2 == pytest.approx(network(batch(lengths, own=True)).nats_S.sum().item(), rel=1e-12)


@pytest.mark.parametrize("own", [True, False], ids=["cells", "reference"])
def test_padding_never_counts(own: bool) -> None:
    network = model()
    got, expected = (outcome(network, batch(LENGTHS["mixed"], own, padding)) for padding in (7, 0))
    assert_equal(got, expected, rtol=1e-14)


@pytest.mark.parametrize("own", [True, False], ids=["cells", "reference"])
def test_the_perplexity_of_a_model_that_knows_nothing_is_its_vocabulary(own: bool) -> None:
    network = model()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        score = network(batch(LENGTHS["mixed"], own))
    assert score.nats_S.mean().exp().item() == pytest.approx(VOCABULARY)
    assert (score.ranks_S == VOCABULARY - 1).all()  # it is never right by chance


def test_what_is_no_number_is_never_right() -> None:
    nan, inf = math.nan, math.inf
    logits = torch.tensor([[nan] * 4, [nan, 1, 0, 0], [0, 1, nan, 2], [0, inf, -inf, 2], [1, 1, 0, 0]])
    assert softmax.ranks(logits, torch.tensor([0, 0, 1, 1, 1])).tolist() == [3, 3, 2, 0, 1]


@pytest.mark.parametrize(("clients", "rank"), [(1, 1), (3, 3), (10, 9), (11, 10), (20, 18), (21, 19)])
def test_nine_clients_in_ten_have_no_larger_perplexity(clients: int, rank: int) -> None:
    """The n-th client has a perplexity of n, on n tokens, of which one is guessed and another among three."""
    order = np.random.default_rng(0).permutation(np.arange(1, clients + 1)).tolist()
    figures = together([Predicted(n, n * math.log(n), (1, 2), 5) for n in order])
    assert figures["perplexity_p90"] == pytest.approx(rank)
    tokens = sum(order)
    assert figures["perplexity"] == pytest.approx(math.exp(sum(n * math.log(n) for n in order) / tokens))
    assert (figures["top1"], figures["top3"]) == (clients / tokens, 2 * clients / tokens)


def test_a_perplexity_that_is_no_number_is_above_all_others() -> None:
    def p90(*nats: float) -> float:
        return together([Predicted(1, each, (0, 0), 5) for each in nats])["perplexity_p90"]

    assert p90(3, 2, math.nan, *[1] * 7) == pytest.approx(math.exp(3))
    assert math.isnan(p90(3, math.nan, 2, math.nan, *[1] * 6))
    assert p90(3, math.inf, 2, math.nan, *[1] * 6) == math.inf


def test_an_untied_model_reads_a_table_cut_down_to_the_words_of_the_batch() -> None:
    network = model(tied=False)
    whole = batch(LENGTHS["mixed"], own=True)
    assert whole.words is not None
    cut = replace(whole, words=replace(whole.words, rows_U=None))
    named = dict(network.named_parameters())
    named["embedding.weight"] = named["embedding.weight"][whole.words.rows_U]
    got = torch.func.functional_call(network, named, (cut,))
    assert got.loss.item() == pytest.approx(network(whole).loss.item(), rel=1e-14)


def test_training_equals_torchs_own() -> None:
    """Steps of the whole table with momentum, of words the batch reads and of those it does not."""
    network, plain = model(), model()
    drawn = {name: parameter.detach() for name, parameter in network.named_parameters()}
    layout = Layout({name: tuple(tensor.shape) for name, tensor in drawn.items()})
    stack = Stack(layout, [VOCABULARY], Workspace(CPU, torch.float64))
    for name, tensor in stack.tensors(0).items():
        tensor.copy_(drawn[name])
    optimizer = LocalOptimizer(SGD(lr=0.3, momentum=0.5), stack, 0.3)
    theirs = torch.optim.SGD(plain.parameters(), lr=0.3, momentum=0.5)
    for lengths in LENGTHS.values():
        leaves = optimizer.begin(range(1), [])
        score = torch.func.functional_call(network, leaves, (batch(lengths, own=True),))
        optimizer.step(range(1), score.loss)
        theirs.zero_grad()
        plain(batch(lengths, own=False)).loss.backward()
        theirs.step()
    optimizer.finish()
    for name, parameter in nonempty(plain.named_parameters()):
        assert torch.allclose(stack.tensors(0)[name], parameter, rtol=1e-9, atol=1e-12), name
        assert not torch.allclose(drawn[name], parameter), name


def test_dropout_strikes_what_the_softmax_reads_in_training_only() -> None:
    network, given = model(dropout=0.5), batch(LENGTHS["mixed"], own=True)
    assert network(given).loss != network(given).loss
    network.eval()
    assert network(given).loss == model()(given).loss


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValidationError, match="must be equal"):
        RecurrentLanguageModel(embedding=WordEmbedding(dim=5), hidden=6)
    with pytest.raises(AssertionError, match="at least two tokens"):
        batch([3, 1], own=True)


def arguments(tokens: int = 7, bias: bool = True, scale: float = 1) -> list[Any]:
    """hidden_SH, weight_VH, bias_V, targets_S, weights_S; one token has no weight."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(tokens, 4), (VOCABULARY, 4), (VOCABULARY,)]
    drawn = [scale * torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    leaves = [tensor.requires_grad_() for tensor in drawn][: 3 if bias else 2] + [None] * (not bias)
    weights_S = torch.rand(tokens, dtype=torch.float64, generator=generator)
    weights_S[0] = 0
    return [*leaves, torch.randint(VOCABULARY, (tokens,), generator=generator), weights_S]


NATIVE = pytest.param(True, marks=pytest.mark.skipif(bool(compile_problem()), reason=compile_problem()))


@pytest.mark.usefixtures("chunks")
@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tokens", [1, 7])
def test_the_softmax_passes_torchs_own_check_and_equals_its_cross_entropy(
    tokens: int, bias: bool, native: bool
) -> None:
    *leaves, targets_S, weights_S = arguments(tokens, bias)
    given = [leaf for leaf in leaves if leaf is not None]

    def objective(*tensors: Tensor) -> Tensor:
        bias_V = tensors[2] if bias else None
        return softmax.nats(tensors[0], tensors[1], bias_V, targets_S, weights_S, native)[0]

    assert torch.autograd.gradcheck(objective, given)
    expected_S = functional.cross_entropy(functional.linear(*leaves), targets_S, reduction="none")
    total, nats_S = softmax.nats(*leaves, targets_S, weights_S, native)
    assert not nats_S.requires_grad
    assert torch.allclose(nats_S, expected_S, rtol=1e-12, atol=1e-12)
    assert total.item() == pytest.approx((weights_S * expected_S).sum().item(), rel=1e-12)
    for upstream in (1, -2.5):
        got = torch.autograd.grad(upstream * objective(*given), given)
        expected = torch.autograd.grad(upstream * (weights_S * expected_S).sum(), given, retain_graph=True)
        for mine, theirs in nonempty(zip(got, expected, strict=True)):
            assert torch.allclose(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("native", [False, NATIVE])
@pytest.mark.parametrize("chosen", [[0], [1], [2], [0, 2]])
def test_only_what_needs_a_gradient_gets_one(chosen: list[int], native: bool) -> None:
    given = arguments()
    for number, leaf in enumerate(given[:3]):
        leaf.requires_grad_(number in chosen)
    softmax.nats(*given, native)[0].backward()
    expected = arguments()
    softmax.nats(*expected, native)[0].backward()
    for number in range(3):
        if number in chosen:
            assert torch.equal(given[number].grad, expected[number].grad)
        else:
            assert given[number].grad is None


def test_a_word_thought_impossible_costs_what_it_costs() -> None:
    """Beyond what a probability in float32 can say."""
    *leaves, targets_S, weights_S = arguments(scale=12)
    expected_S = functional.cross_entropy(functional.linear(*leaves), targets_S, reduction="none")
    assert expected_S.max() > 150
    _, nats_S = softmax.nats(*[leaf.float() for leaf in leaves], targets_S, weights_S.float())
    assert torch.allclose(nats_S.double(), expected_S, rtol=1e-4, atol=1e-4)
