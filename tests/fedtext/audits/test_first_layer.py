"""What a first layer's update says of the words that it read, and where they stood."""

from typing import Any

import numpy as np
import pytest
import torch

from fedtext.audits.decoding import exchangeable
from fedtext.audits.first_layer import FirstLayer, everywhere, first_layer
from fedtext.audits.matching import Search
from fedtext.models.transformer import TransformerClassifier, TransformerEncoder
from tests.checkpoints import SCRATCH
from tests.leaking import ONE_STEP, corpus, figures

RECURRENT = "encoder.rnn.weight_ih_l0_reverse"


def test_directions_are_those_of_the_words_and_single_them_out() -> None:
    """Three words occur; their part of a layer's update is a combination of them, and so is no other word."""
    rng = np.random.default_rng(0)
    table_VD = torch.from_numpy(rng.standard_normal((40, 8), np.float32))
    update = torch.from_numpy(rng.standard_normal((12, 3), np.float32)) @ table_VD[[3, 7, 11]]

    def layer(update: torch.Tensor, name: str = RECURRENT, read: int = 5, squashed: bool = False) -> FirstLayer:
        return first_layer({name: update}, {}, read, 8, squashed)

    def found(layer: FirstLayer, most: int = 5) -> list[int]:
        return torch.nonzero(layer.within(table_VD, [most])[0][0]).flatten().tolist()

    assert layer(update).basis_SD.shape == layer(update, squashed=True).basis_SD.shape == (3, 8)
    assert found(layer(update)) == [3, 7, 11]
    assert len(found(layer(update), 2)) == 2
    table_VD[5] = 0
    assert found(layer(update)) == [3, 7, 11]
    noisy = update + torch.from_numpy(rng.standard_normal((12, 8), np.float32))
    assert len(found(layer(noisy))) == 40
    few = layer(update[:4])  # rows, which cannot span five words
    for nothing in (layer(update, "head.0.weight"), layer(update, read=8), few, everywhere(8)):
        assert torch.equal(nothing.basis_SD, torch.eye(8))
        assert len(found(nothing)) == 40


@pytest.mark.parametrize("factor", [1e-6, 1e4])
def test_how_long_an_update_is_does_not_matter(factor: float) -> None:
    rng = np.random.default_rng(0)
    table_VD = torch.from_numpy(rng.standard_normal((40, 8), np.float32))
    update = torch.from_numpy(rng.standard_normal((12, 3), np.float32)) @ table_VD[[3, 7, 11]]
    as_sent, scaled = (first_layer({RECURRENT: one}, {}, 5, 8, False) for one in (update, update * factor))
    assert scaled.basis_SD.shape == as_sent.basis_SD.shape
    assert torch.nonzero(scaled.within(table_VD, [5])[0][0]).flatten().tolist() == [3, 7, 11]


def test_of_encoders_that_read_differently_or_of_signs_nothing_is_known() -> None:
    query = "layers.layer.0.attention.self.query.weight"
    block = {"position_embeddings.weight": (4, 8), "LayerNorm.weight": (8,), "LayerNorm.bias": (8,)}
    parameters = {f"encoder.embeddings.{name}": torch.ones(shape) for name, shape in block.items()}
    target = {f"encoder.{query}": torch.randn(8, 3) @ torch.randn(3, 8)}
    assert first_layer(target, parameters, 3, 8, False).places
    assert not first_layer(target, parameters, 3, 8, True).places
    assert not first_layer(target | {f"other.{query}": torch.randn(8, 8)}, parameters, 3, 8, False).places


def transformer(architecture: str = "bert", std: float = 1.0, dropout: float = 0.0, **embedding: Any) -> dict[str, Any]:
    shape = {"architecture": architecture, "layers": 2, "heads": 2, "intermediate": 24, "positions": 12}
    words = {"dim": 48, "init": {"random": {"std": std}}} | embedding
    return {"name": "transformer", "embedding": words, "head": {"hidden": 8}, "dropout": dropout} | shape


def read(model: dict[str, Any], sizes: list[int], seed: int, method: Any = "fedavg", **how: Any) -> dict[str, float]:
    """What an attack without search reads: hence by linear algebra, and by exchanging. Too small a step is lost in
    float32's rounding."""
    training = ONE_STEP | {"optimizer": {"lr": 1.0, "momentum": 0}}
    attack = [{"gradient_inversion": {"steps": 1} | how}]
    found = figures(corpus(sizes, seed=seed), attack, model=model, method=method, training=training)
    return {name.removeprefix("inversion_"): value for name, value in found.items() if name.startswith("inversion_")}


@pytest.mark.parametrize(("architecture", "std"), [("bert", 1.0), ("distilbert", 0.3)])
def test_a_transformer_tells_which_words_stand_where(architecture: str, std: float) -> None:
    """Of a text alone all of them at their places; of two which words stand at a place in either, and by exchanging in
    which."""
    model = transformer(architecture, std)
    alone = read(model, [7], 3)
    assert [alone[f"public_{name}"] for name in ("f1", "exact", "ptlr_exact")] == [1, 1, 1]
    assert alone["unrelated_exact"] < 0.4
    kept, swapped = read(model, [7, 5], 7, swaps=0), read(model, [7, 5], 7)
    assert kept["public_ptlr"] == swapped["public_ptlr"] == 1
    assert kept["public_exact"] < 0.7
    assert swapped["public_exact"] == 1


def test_a_table_kept_at_the_client_hides_a_transformers_words_only_if_it_began_there() -> None:
    training = {"training": ONE_STEP, "method": "fedevocab"}
    attack = [{"gradient_inversion": {"steps": 1}}]
    found = figures(corpus([7], seed=3), attack, model=transformer(), **training)
    assert found["inversion_public_exact"] == 1
    drawn = figures(corpus([7], seed=3), attack, model=transformer(own={"words": "all"}), **training)
    assert drawn["inversion_true_exact"] == 1 > 0.4 > drawn["inversion_public_exact"]


def test_words_that_lie_a_little_outside_are_found_where_they_lie_farthest_inside() -> None:
    """With dropout, with positions that were trained at the client, and a word that stands twice in a text."""
    assert read(transformer(dropout=0.1), [7], 4)["public_precision"] == 1
    assert read(transformer(dropout=0.1), [7], 4)["public_recall"] > 0.7
    assert read(transformer(), [7], 4, {"name": "fedevocab", "keeps": "block"})["public_exact"] == 1
    assert read(transformer(), [7, 5], 4)["public_exact"] == 1


def test_who_has_the_clients_own_table_is_no_worse_off() -> None:
    """Here its rows have moved far in training, and the public ones explain the update."""
    found = read(transformer(std=0.06), [7, 5], 4)
    assert found["true_exact"] == found["public_exact"] > 0.6


def test_a_search_in_a_transformers_directions_explains_the_update() -> None:
    assert read(transformer(), [5], 3)["distance"] > 0.1
    assert read(transformer(), [5], 3, steps=40)["distance"] < 0.01


def test_where_lengths_are_not_known_a_transformers_words_still_are() -> None:
    assert read(transformer(), [7], 3, lengths="longest")["public_recall"] == 1


def test_words_are_exchanged_until_nothing_is_better_or_the_tries_are_spent() -> None:
    """Of four texts, two of which have the same word. The client's gradient is here the words themselves."""

    class Plain:
        shared = ("words",)
        rescaled = False
        calls = 0

        def gradient(self, words_MD: torch.Tensor, *rest: torch.Tensor, slopes: bool) -> Any:
            self.calls += 1
            return [words_MD]

    table_VD, rows_M = torch.eye(4), torch.tensor([1, 1, 2, 3])
    goal = {"words": table_VD[[2, 3, 1, 1]]}
    pairs_P2 = exchangeable([1] * 4, 1)
    assert len(pairs_P2) == 6
    for seed in range(20):
        client: Any = Plain()
        rest = torch.ones(4), torch.zeros(4), table_VD, rows_M, pairs_P2, np.random.default_rng(seed)
        assert Search(swaps=100).arranged(client, goal, *rest).tolist() == [2, 3, 1, 1]
        assert Search(swaps=0).arranged(client, goal, *rest).tolist() == rows_M.tolist()
        client = Plain()
        Search(swaps=2).arranged(client, goal, *rest)
        assert client.calls == 3


def test_words_are_exchanged_between_texts_at_the_same_place() -> None:
    assert exchangeable([3, 2, 1], 3).tolist() == [[0, 3], [0, 6], [1, 4], [3, 6]]
    assert exchangeable([3], 3).shape == (0, 2)


def test_what_a_transformer_reads_is_a_word_at_a_place() -> None:
    """As its own embedding block makes it of a word's vector; and back."""
    config = TransformerClassifier.model_validate(SCRATCH | {"architecture": "bert", "dropout": 0})
    torch.manual_seed(0)
    encoder = TransformerEncoder(config)
    block = encoder.embeddings
    torch.nn.init.normal_(block.LayerNorm.weight)
    torch.nn.init.normal_(block.LayerNorm.bias)
    parameters = {f"encoder.{name}": tensor.detach() for name, tensor in encoder.named_parameters()}
    query = "encoder.layers.layer.0.attention.self.query.weight"
    layer = first_layer({query: parameters[query]}, parameters, 3, 8, False)
    words_BTD = torch.randn(2, 5, 8)
    read_BTD = block(inputs_embeds=words_BTD).detach()
    for place in range(5):
        torch.testing.assert_close(layer.inputs(words_BTD[:, place], place), read_BTD[:, place])
    places_M = torch.arange(5).repeat(2)
    torch.testing.assert_close(layer.inputs(words_BTD.flatten(0, 1), places_M), read_BTD.flatten(0, 1))
    again_MD = layer.words(read_BTD.flatten(0, 1), places_M).view(2, 5, 8)
    torch.testing.assert_close(block(inputs_embeds=again_MD).detach(), read_BTD)
