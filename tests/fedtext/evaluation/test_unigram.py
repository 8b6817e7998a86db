"""The unigram row of language models: by hand, on real text, and in what a run reports."""

import io
import math
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pytest

from dashboards.table import print_table
from dashboards.trial import Outcome
from fedtext.corpora.prepare import prepare
from fedtext.corpora.ptb import PTBCorpus
from fedtext.corpora.types import ClientData, TokenSet
from fedtext.evaluation.unigram import ALPHAS, unigram
from fedtext.models.base import Embedding
from fedtext.records import RoundRecord
from tests import tiny
from tests.data import real_data
from tests.loops import nonempty
from tests.planned import Planned
from tests.runs.test_language_models import CORPUS, SELECTING, federation

BOS, EOS = 2, 3


def split(*sentences: list[int]) -> TokenSet:
    framed = [[BOS, *words, EOS] for words in sentences]
    tokens = np.array(list(chain(*framed)), np.int32)
    lengths_N = np.array([*map(len, framed)], np.int64)
    return TokenSet(tokens, np.cumsum([0, *lengths_N]), np.zeros(len(framed), np.int64), bytes_N=2 * lengths_N)


def clients(*validation: list[int]) -> list[ClientData]:
    """Two clients of the vocabulary <pad>, <unk>, <s>, </s>, 4, 5. Together they have counts 0, 3, 3, 1 of <unk>,
    </s>, 4 and 5."""
    rows_R = np.arange(6, dtype=np.int32)
    return [
        ClientData(0, "a", rows_R, 6, split([4, 4], [5]), split(*validation), split([4])),
        ClientData(1, "b", rows_R, 6, split([4]), split(), split([1, 5])),
    ]


def test_by_hand() -> None:
    found = unigram(clients(), alpha=0.5)
    p = {1: 0.5 / 9, EOS: 3.5 / 9, 4: 3.5 / 9, 5: 1.5 / 9}  # (n + 0.5) / (7 + 4 * 0.5); never <pad> or <s>
    assert sum(p.values()) == pytest.approx(1)
    nats = [-math.log(p[word]) for word in (4, EOS, 1, 5, EOS)]
    assert found["perplexity_unigram"] == pytest.approx(math.exp(sum(nats) / 5))
    assert found["nats_per_token_unigram"] == pytest.approx(sum(nats) / 5)
    assert found["bits_per_byte_unigram"] == pytest.approx(sum(nats) / math.log(2) / (2 * (3 + 4)))
    assert found["perplexity_p90_unigram"] == pytest.approx(math.exp(sum(nats[2:]) / 3))  # of the second client
    assert found["top1_unigram"] == pytest.approx(2 / 5)  # 4 and </s> are equally likely, and </s> is the first
    assert found["top3_unigram"] == pytest.approx(4 / 5)  # 5 is third, <unk> fourth
    assert not any(nonempty(name.endswith("_val") for name in found))


def test_alpha_is_chosen_on_validation_and_never_on_test() -> None:
    assert unigram(clients())["alpha_unigram"] == 1.0, "nothing to choose it by"
    frequent, rare = unigram(clients([4, 4, 4])), unigram(clients([1, 1, 1]))
    assert frequent["alpha_unigram"] == 0.001
    assert rare["alpha_unigram"] == 10.0
    assert frequent == unigram(clients([4, 4, 4]), alpha=0.001)
    assert frequent["perplexity_unigram_val"] < rare["perplexity_unigram_val"]
    other = [replace(client, test=split([1, 1, 1, 1])) for client in clients([4, 4, 4])]
    assert unigram(other)["alpha_unigram"] == 0.001


def test_half_powers_of_ten_from_a_thousandth_to_ten_are_tried() -> None:
    assert tuple(float(f"{10 ** (k / 2):.0e}") for k in range(-6, 3)) == ALPHAS


@pytest.mark.parametrize(("seed", "add_one", "tenth"), [(0, 445, 431), (1, 453, 439), (2, 447, 433)])
def test_a_twentieth_of_penn_treebank(seed: int, add_one: int, tenth: int) -> None:
    """The figures of a count made apart from this code."""
    folder = real_data("ptb/ptb.parquet")
    corpus = prepare(PTBCorpus(share=0.05, validation=0.2), Embedding(dim=4), seed, folder)
    assert round(unigram(corpus.clients, 1.0)["perplexity_unigram"]) == add_one
    assert round(unigram(corpus.clients, 0.1)["perplexity_unigram"]) == tenth
    chosen = unigram(corpus.clients)
    assert chosen["perplexity_unigram_val"] <= unigram(corpus.clients, 0.1)["perplexity_unigram_val"]


def test_every_run_of_a_language_model_reports_it_where_the_split_is_read() -> None:
    expected = unigram(CORPUS.clients)
    both = list(federation(tiny.language_model()).run())
    assert all(nonempty(record.metrics.items() >= expected.items() for record in both))
    first, last = federation(tiny.language_model(evaluation=SELECTING)).run()
    assert {name for name in first.metrics if "unigram" in name} == {name for name in expected if "_val" in name}
    assert last.metrics.items() >= expected.items()
    words = tiny.Finished("fedavg").rows[-1].metrics
    assert not any(nonempty("unigram" in name for name in words)), "classifiers predict no words"


def test_the_tokens_are_those_that_models_are_evaluated_on() -> None:
    """Of a model that gives every word the same probability, and a unigram model of as good as equal counts."""
    made = federation(tiny.language_model())
    flat = np.zeros_like(made.flat)
    read = made.fleet.evaluate(flat, 1, False, ("test", "validation"))
    tokens = {name: sum(part.pooled[name].tokens for part in read.values()) for name in ("Ag", "Ag_val")}
    assert tokens == {
        name: sum(len(getattr(client, side).tokens_T) - len(getattr(client, side)) for client in CORPUS.clients)
        for name, side in (("Ag", "test"), ("Ag_val", "validation"))
    }
    even = unigram(CORPUS.clients, alpha=1e12)["perplexity_unigram"]
    assert even == pytest.approx(len(CORPUS.vocabulary) - 2)


def outcome(perplexity: float, counted: float) -> Outcome:
    metrics: dict[str, Any] = {"perplexity": perplexity, "top3": 0.2, "clients_trained": 2.0}
    metrics |= {"perplexity_unigram": counted, "top3_unigram": 0.1, "top1_unigram": 0.05, "alpha_unigram": 0.1}
    return Outcome("finished", (RoundRecord(2, 0.0, metrics),))


def test_the_table_of_a_sweep_has_a_row_of_it() -> None:
    made = tiny.language_model()
    cases = [Planned(f"0{n}", f"case {n}", False, made) for n in range(2)]

    def table(*outcomes: Outcome) -> list[str]:
        out = io.StringIO()
        print_table(cases, {c.id: one for c, one in zip(cases, outcomes, strict=True)}, "perplexity", "min", out)
        return out.getvalue().splitlines()

    head, _, first, second, row, *notes = table(outcome(90.0, 95.0), outcome(99.0, 95.0))
    assert "unigram" not in head
    assert (first.split()[1], second.split()[1]) == ("00", "01")
    assert row.split()[:2] == ["-", "unigram"]
    assert "95.0" in row.split()
    assert "10.0" in row.split()
    assert any("has not been shown to use context" in note for note in notes)
    two = [line for line in table(outcome(90.0, 95.0), outcome(99.0, 80.0)) if "unigram (" in line]
    assert [("00" in line, "95.0" in line) for line in two] == [(True, True), (False, False)]
    assert [("01" in line, "80.0" in line) for line in two] == [(False, False), (True, True)]


def test_classifiers_have_no_such_row() -> None:
    out = io.StringIO()
    cases = [Planned("00", "case", False, tiny.experiment())]
    ended = Outcome("finished", (RoundRecord(2, 0.0, {"Ag": 0.5}),))
    print_table(cases, {"00": ended}, "Ag", "max", out)
    assert "unigram" not in out.getvalue()
