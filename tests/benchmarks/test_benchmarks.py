"""What the benchmarks run on, and how they end: never how fast they are."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from benchmarks import gpu, local_loop, real, synthetic, w2, w3
from fedtext.corpora.types import ClientData
from fedtext.text.hashing import buckets
from tests.data import real_data
from tests.elsewhere import DEVICE, Elsewhere

REVIEWS = ["Dogs and CATS<br />don't 10/10", "and and dogs!", "cats", "a b"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """IMDB in small: 40 reviews of the train split, the negative ones first, some of the test split before them."""
    rows = [{"split": "test", "label": 1, "text": "never"}] * 3
    rows += [{"split": "train", "label": int(at >= 20), "text": REVIEWS[at % 4]} for at in range(40)]
    save(tmp_path, "imdb", rows)
    return tmp_path


def save(data: Path, name: str, rows: list[dict]) -> None:
    (data / name).mkdir()
    pq.write_table(pa.Table.from_pylist(rows), data / name / f"{name}.parquet")


def words(client: ClientData) -> list[list[int]]:
    """The rows of each text in the whole table."""
    parts = np.split(client.rows_R[client.train.tokens_T], client.train.offsets[1:-1])
    return [part.tolist() for part in parts]


def test_reviews_are_dealt_out_over_both_labels(data: Path) -> None:
    clients = real.reviews(data, 2, 10, 5_000)
    assert [len(client.train) for client in clients] == [10, 10]
    assert [client.train.labels_N.tolist() for client in clients] == [[0] * 5 + [1] * 5] * 2
    # every second review is taken: the first and third of four, which go to the two clients in turn
    dealt = [[1 + bucket for bucket in buckets(text, 5_000)] for text in ("dogs and cats dont", "cats")]
    assert [words(client) for client in clients] == [[dealt[0]] * 10, [dealt[1]] * 10]


def test_both_loops_of_w2_read_the_same_words(data: Path) -> None:
    client = real.reviews(data, 1, 40, w2.BUCKETS)[0]
    vectors, labels = w2.dense(client).tensors
    assert [np.flatnonzero(vector).tolist() for vector in vectors.numpy()] == [
        buckets(REVIEWS[at % 4].replace("<br />", " "), w2.BUCKETS) for at in range(40)
    ]
    assert labels.tolist() == [0] * 20 + [1] * 20


@pytest.mark.parametrize("bucket", [0, w2.BUCKETS - 1])
def test_the_first_and_the_last_bucket_have_a_row(bucket: int) -> None:
    client = synthetic.holding(0, synthetic.TokenSet(np.array([1 + bucket]), np.array([0, 1]), np.array([1])))
    assert np.flatnonzero(w2.dense(client).tensors[0].numpy()).tolist() == [bucket]
    assert client.rows_R.tolist() == [0, 1 + bucket]  # row 0 is <pad>, which is no bucket's
    assert client.rows_R.max() < w2.ROWS


def test_lines_become_batches_that_go_on_where_the_last_ended(data: Path) -> None:
    save(data, "ptb", [{"text": "b c"}, {"text": ""}, {"text": "c <unk> d c b e"}, {"text": "f"}])
    # b c <eos> <eos> c <unk> d c b e <eos> f <eos>; of 6 rows <pad>, <unk>, and then by frequency <eos>, c, b, d
    ids = [4, 3, 2, 2, 3, 1, 5, 3, 4, 1, 2, 1, 2]
    made = real.lines(data, 6, 2, 4)
    assert made.tolist() == [[ids[0:4], ids[6:10]], [ids[3:7], ids[9:13]]]


def test_wikitext_goes_before_penn_treebank(data: Path) -> None:
    save(data, "ptb", [{"text": "b " * 99}])
    expected = real.lines(data, 10, 2, 4)
    save(data, "wikitext2_valid_test", [{"text": "a b " * 99}])
    assert real.lines(data, 10, 2, 4).shape != expected.shape


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("W1", "no fdu_mtl.parquet"),
        ("W2", "there is no imdb/imdb.parquet in"),
        ("W3", "there is no wikitext2_valid_test/wikitext2_valid_test.parquet or ptb/ptb.parquet in"),
        ("W4", "no fdu_mtl.parquet"),
    ],
)
def test_what_is_not_there_is_said(
    workload: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        local_loop.main([workload, "--data", str(tmp_path)])
    output = capsys.readouterr()
    assert end.value.code == 2
    assert output.err.startswith("error: ")
    assert output.err.count("\n") == 1
    assert said in output.err
    assert str(tmp_path) in output.err
    assert output.out == ""


@pytest.mark.parametrize(("workload", "name"), [("W2", "imdb"), ("W3", "ptb")])
@pytest.mark.parametrize("fault", ["short", "no parquet", "no column"])
def test_what_cannot_be_used_is_said(
    workload: str, name: str, fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"split": "train", "label": 0, "text": "b"}
    save(tmp_path, name, [{"texts": "b"} if fault == "no column" else row])
    path = tmp_path / name / f"{name}.parquet"
    if fault == "no parquet":
        path.write_text("b")
    with pytest.raises(SystemExit) as end:
        local_loop.main([workload, "--data", str(tmp_path)])
    message = capsys.readouterr().err
    assert end.value.code == 2
    assert str(path) in message
    assert message.count("\n") == 1


def test_all_is_read_before_anything_is_measured(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_loop, "rows_of", lambda *given: pytest.fail("measured"))
    monkeypatch.setattr(w2, "TEXTS", 4)
    with pytest.raises(SystemExit):
        local_loop.main(["W2", "W3", "--data", str(data)])


def test_a_run_on_real_texts(capsys: pytest.CaptureFixture[str]) -> None:
    data = real_data("imdb/imdb.parquet")
    real_data("wikitext2_valid_test/wikitext2_valid_test.parquet")
    clients = w2.corpus(data)
    assert [len(client.train) for client in clients] == [250] * 10
    assert all(client.train.labels_N.mean() == 0.5 for client in clients)
    assert min(np.diff(client.train.offsets).min() for client in clients) > 0
    batches = w3.corpus(data)
    assert batches.shape[1:] == (20, 36)
    assert (batches[1:, :, 0] == batches[:-1, :, -1]).all()
    assert batches.max() == w3.VOCABULARY - 1
    rows = local_loop.main(["W2", "W3", "--data", str(data), "--turns", "1", "--steps", "1"])
    assert [(row["workload"], row["variant"]) for row in rows] == [
        (workload, variant) for workload in ("W2", "W3") for variant in ("naive", "ours")
    ]
    for row in rows:
        assert row["texts"] == f"of {data}"
        assert row["samples / s"] == pytest.approx(1000 * local_loop.SAMPLES[row["workload"]] / row["wall ms"])
    assert "wall ms" in capsys.readouterr().out


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "VOCABULARY", 300)
    monkeypatch.setattr(gpu, "TEXTS", 40)
    monkeypatch.setattr(synthetic, "client", partial(synthetic.client, longest=20))


def test_a_gpus_benchmark_tried_out_on_the_cpu(small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It asks for the FLOP of the products that local_loop counts by hand, but for the small ones of the head, and no
    stack asks for more calls a client than its clients one by one."""
    words = ["W1", "--device", "cpu", "--stacks", "4", "--turns", "1", "--steps", "2", "--json", str(tmp_path / "g")]
    rows = {row["variant"]: row for row in gpu.main(words, size=(64, 1))}
    assert list(rows) == ["reference", "cells", "cells, stack 4"]
    client = synthetic.client(0, 40, 300)
    expected = 3 * sum(2 * m * k * n for m, k, n in local_loop.products(local_loop.TASKS["W1"], client))
    for row in rows.values():
        assert row["GFLOP / s"] * row["wall ms"]["median"] * 1e6 == pytest.approx(expected, rel=0.1)
    assert rows["cells, stack 4"]["calls"] < 0.5 * rows["cells"]["calls"]
    card = json.loads((tmp_path / "g").read_text())["figures"]["card"]
    assert card["name"] == "the CPU"
    assert min(card["GFLOP / s"], card["GB / s"]) > 0
    assert "% of the card's" in capsys.readouterr().out


def test_what_operations_have_to_read_and_write() -> None:
    """In numbers of 4 bytes; indices have 8."""
    table, rows, two = torch.zeros(1000, 3), torch.zeros(2, 3), torch.tensor([1, 5])
    flat, grad, memory = [torch.zeros(50)], [torch.zeros(50)], [torch.zeros(50)]

    def bytes_of(run: Any) -> int:
        with gpu.Counted(torch.device("cpu")) as counted:
            run()
        assert counted.calls == 1
        return counted.bytes

    indices, six = 2 * 8, 6 * 4
    assert bytes_of(lambda: table.index_select(0, two)) == indices + 2 * six
    assert bytes_of(lambda: table.index_copy_(0, two, rows)) == indices + 2 * six
    assert bytes_of(lambda: table.index_add_(0, two, rows)) == indices + 3 * six
    assert bytes_of(lambda: table.index_fill_(0, two, 0)) == indices + six
    into = torch.empty_like(rows)
    assert bytes_of(into.zero_) == six
    assert bytes_of(lambda: into.copy_(rows)) == 2 * six
    assert bytes_of(lambda: torch._foreach_copy_([into], [rows])) == 2 * six
    assert bytes_of(lambda: torch._foreach_add_([into], 1)) == 2 * six
    assert bytes_of(lambda: torch.add(rows, rows, out=into)) == 3 * six
    assert bytes_of(lambda: rows.view(6)[:2].mul_(2)) == 2 * 2 * 4
    sgd = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0, "dampening": 0, "nesterov": False, "maximize": False}
    step = partial(torch._fused_sgd_, flat, grad, memory, **sgd, is_first_step=False)
    assert bytes_of(step) == 5 * 200  # parameters and momentum both ways, the gradient once
    with gpu.Counted(torch.device("cuda")) as counted:
        rows + rows
    assert counted.calls == 0  # that was not there


@pytest.mark.parametrize("workload", ["W1", "W2", "W3", "W4"])
def test_a_gpus_benchmark_keeps_to_the_gpu(workload: str, small: None) -> None:
    with Elsewhere():
        for run, _ in gpu.variants(workload, torch.device(DEVICE), (2,)).values():
            run(1)


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_a_device_that_is_not_there_is_said(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        gpu.main(["--device", device])
    message = capsys.readouterr().err
    assert end.value.code == 2
    assert message.startswith(f"error: --device: {device} is not there (")
    assert message.count("\n") == 1
