"""The clients of one host: what they start with, what it keeps of them, and what is left when they leave."""

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load

from fedtext.client.worker import Worker
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.methods.base import Phase
from fedtext.parameters import initial
from fedtext.state.noise_key import NoiseKey, noise_key
from fedtext.text.tokens import UNK_ID
from fedtext.training.phases import moving_rows
from tests import tiny
from tests.fedtext.client.hosting import CORPUS, hosting
from tests.loops import nonempty


def test_who_leaves_takes_its_state_along_and_nothing_of_it_stays() -> None:
    worker, flat = hosting(tiny.experiment("kteps", training=tiny.TRAINING | {"stack": 1}))
    for client in (0, 1):
        assert not worker.train(flat, 1, [client])[0].error
    worker.evaluate(flat, 1, [0, 1, 2], final=False)
    assert {client for client, _ in worker.texts} == {0, 1, 2}
    kept = {name: value.copy() for name, value in worker.private[1].items()}
    states = worker.release([1, 2])
    assert set(worker.clients) == set(worker.private) == {0}
    assert {client for client, _ in worker.texts} == {0}
    assert states[2] == b"", "it never trained"
    assert {name: value.tolist() for name, value in load(states[1]).items()} == {n: v.tolist() for n, v in kept.items()}
    worker.adopt([CORPUS.clients[1]], {1: states[1]})
    assert set(worker.clients) == {0, 1}
    assert worker.private_states([1]) == {1: states[1]}
    worker.adopt([CORPUS.clients[2]], {2: b""})
    assert worker.private[2] == {}


@pytest.mark.parametrize("own", [None, {"words": "all", "std": 2.0}, {"words": "digits", "std": 2.0}])
def test_any_rows_of_a_table_are_those_that_a_client_starts_with(own: Any) -> None:
    """Of its own rows they are what its stack has; of others each client draws its own where that is asked for."""
    model = {"embedding": {"dim": 5, "own": own}, "hidden": 4}
    method = "fedrecon" if own and own["words"] == "digits" else "local_only"
    worker, flat = hosting(tiny.experiment(method, model=model))
    rows_X = np.arange(len(worker.rows), dtype=np.int32)
    tables = [worker.rows_of(flat, client, TABLE, rows_X) for client in (0, 1)]
    for client, table_XD in enumerate(tables):
        stack = worker.stack(flat, [client])
        assert torch.equal(table_XD[worker.clients[client].rows_R], stack.tensors(0)[TABLE])
        if own:  # standard normal numbers of the client's own, word after word
            chosen_X = np.ones(len(rows_X), bool) if own["words"] == "all" else worker.digits_V
            draw = worker.noise.paired(0, f"own start/{TABLE}", client=client)
            numbers = np.float32(2) * draw.standard_normal((np.count_nonzero(chosen_X), 5), np.float32)
            assert np.array_equal(table_XD.numpy()[chosen_X], numbers)
    differ_X = (tables[0] != tables[1]).any(1).numpy()
    words_X = rows_X + worker.rows.start
    if own is None:
        assert not differ_X.any()
    else:
        assert differ_X.tolist() == [own["words"] == "all" or (word % 3 == 0 and word > 0) for word in words_X]


def test_with_a_vocabulary_of_its_own_a_client_begins_with_unk_as_zeros() -> None:
    worker, flat = hosting(tiny.experiment("fedevocab"))
    rows_X = np.arange(len(worker.rows), dtype=np.int32)
    zeros_X = ~worker.rows_of(flat, 0, TABLE, rows_X).numpy().any(1)
    assert np.flatnonzero(zeros_X).tolist() == [UNK_ID - worker.rows.start]
    shared, flat = hosting(tiny.experiment("fedavg"))
    assert shared.rows_of(flat, 0, TABLE, rows_X).numpy().any(1).all()


def test_the_engine_decides_how_batches_are_read() -> None:
    def training(engine: str, **changes: Any) -> tuple[int | None, bool, str]:
        rounds = tiny.TRAINING | {"engine": engine, "stack": 1}
        worker, _ = hosting(tiny.configured(training=rounds, **changes))
        assert worker.evaluating == replace(worker.training, cut=False)
        return worker.training.directions, worker.training.cut, worker.training.engine

    gru, bag = ({"name": name, "embedding": {"dim": 5}} for name in ("gru", "bag"))
    assert training("reference") == (None, False, "reference")
    assert training("cells") == (2, True, "cells")
    assert training("cells", model=gru | {"hidden": 4}) == (1, True, "cells")
    assert training("auto", model=bag) == (None, False, "reference"), "it has no steps"
    assert training("cells", method="fedprox") == (2, False, "cells"), "its loss reads the whole table"


@pytest.mark.parametrize("order", ["common", "first"])
def test_of_a_text_the_words_are_kept_that_its_model_uses(order: str) -> None:
    corpus = tiny.corpus(clients=2, texts=40)
    model = {"name": "vectors", "embedding": {"dim": 5}, "pooling": "flat", "words": 3, "order": order}
    worker, _ = hosting(tiny.experiment(model=model), corpus)
    tokens = worker.clients[1].train
    whole = [text.tolist() for text in np.split(tokens.tokens_T, tokens.offsets[1:-1])]
    used = {
        "common": [[word for word, _ in Counter(text).most_common(3)] for text in whole],
        "first": [text[:3] for text in whole],
    }
    assert used["common"] != used["first"]
    texts = worker.texts_of(1, "train")
    found = zip(texts.padded_NT.tolist(), texts.lengths_N, strict=True)
    assert [words[:length] for words, length in found] == used[order]


def test_what_the_server_sent_goes_to_another_device_once() -> None:
    """The device "meta" has shapes and no numbers."""
    worker, flat = hosting(tiny.experiment())
    assert all(nonempty(view.base is not None for view in worker.given.received(flat).values()))
    assert worker.given.last is None, "the processor reads it where it lies"
    worker.given.device = torch.device("meta")
    first = worker.given.received(flat)[TABLE]
    assert first.device.type == "meta"
    assert first.shape == worker.shared.shapes[TABLE]

    def storage() -> torch.Tensor:
        assert worker.given.last is not None
        return worker.given.last[1]

    sent = storage()
    worker.given.received(flat[:])  # another array over the same memory
    assert storage() is sent
    other = flat.copy()
    worker.given.received(other)
    assert storage() is not sent
    sent = storage()
    worker.given.received(other)
    assert storage() is sent


def test_arithmetic_that_a_device_does_not_have_is_refused_where_clients_are_hosted() -> None:
    with pytest.raises(UserError, match=r"training\.tf32 is about a GPU's products, but clients would be trained"):
        hosting(tiny.experiment(training=tiny.TRAINING | {"tf32": True}))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("rows", "moves"), [("all", None), ("digits", True), ("others", False)])
def test_which_rows_of_a_stack_move(rows: Any, moves: bool | None, known: bool) -> None:
    """Every third word counts as one with a digit, or none does. Behind the clients' rows each has one that pads
    words."""
    worker, _ = hosting(tiny.experiment("fedrecon"), CORPUS if known else replace(CORPUS, digits_V=None))
    each = [worker.clients[client].rows_R for client in (0, 2)]
    found_N1 = moving_rows(Phase("any", 1, rows=rows), each, worker.digits_V)
    if moves is None:
        assert found_N1 is None
        return
    words_N = np.concatenate(each) + worker.rows.start
    expected = [float((known and word % 3 == 0 and word > 0) == moves) for word in words_N]
    assert found_N1 is not None
    assert found_N1.shape == (len(words_N) + 2, 1)
    assert found_N1[: len(words_N), 0].tolist() == expected
    assert found_N1[len(words_N) :, 0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("method", "participants"), [("fedavg", 3), ("pooled", 4)])
def test_the_runs_key_is_that_of_all_participants_where_none_is_given(method: str, participants: int) -> None:
    """All texts in one place are one participant more."""
    experiment = tiny.experiment(method)
    _, private = initial(experiment, CORPUS)
    for members, among in ((CORPUS.clients, None), (CORPUS.clients[:1], 3)):
        worker = Worker(experiment, CORPUS, members, private, corpus_clients=among)
        assert worker.noise == noise_key(experiment, CORPUS.content, participants)
    given = NoiseKey(bytes(16))
    assert Worker(experiment, CORPUS, CORPUS.clients, private, noise=given).noise is given
