"""The workloads of the benchmark of the local loop, and how it ends: never how fast it is."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import local_loop, w2, w3
from benchmarks.tests.tables import save
from tests.data import real_data
from tests.loops import nonempty


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
    assert all(nonempty(client.train.labels_N.mean() == 0.5 for client in clients))
    assert min(np.diff(client.train.offsets).min() for client in clients) > 0
    batches = w3.W3.corpus(data)
    assert batches.shape[1:] == (20, 36)
    assert (batches[1:, :, 0] == batches[:-1, :, -1]).all()
    assert batches.max() == w3.VOCABULARY - 1
    rows = local_loop.main(["W2", "W3", "--data", str(data), "--turns", "1", "--steps", "1"])
    assert [(row["workload"], row["variant"]) for row in rows] == [
        *(("W2", variant) for variant in ("naive", "ours")),
        *(("W3", variant) for variant in ("naive", "ours", "floor", "floor, step by step")),
    ]
    for row in nonempty(rows):
        assert row["texts"] == f"of {data}"
        if row["variant"].startswith("floor"):
            continue
        assert row["samples / s"] == pytest.approx(1000 * local_loop.SAMPLES[row["workload"]] / row["wall ms"])
    assert "wall ms" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["W3", "W5"])
def test_the_loops_of_language_models_train_the_same_model(name: str) -> None:
    """The plain network has the same logits as ours, and the same weights after two steps."""
    task = local_loop.LANGUAGE[name]
    data, words = task.corpus(None, 60)[:3], 60
    plain, network = w3.Plain(task.config, words), task.network(words)
    plain.load_state_dict(network.state_dict(), strict=False)
    logits = plain(torch.from_numpy(data[0][:, :-1]))
    assert torch.allclose(logits, network.logits(network.hidden(torch.from_numpy(data[0][:, :-1]))), atol=1e-5)
    assert task.inputs == data[0][:, 1:].size
    plain_loop, loop = w3.naive(data, words, task), w3.ours(data, words, engine="cells", task=task)
    for run in nonempty((plain_loop, loop, *w3.variants(data, words, task).values())):
        run(2)
    theirs, ours = plain_loop.weights(), loop.weights()
    names = theirs.keys() & ours.keys()
    assert len(names) >= 5
    for name in nonempty(names):
        start = dict(network.named_parameters())[name].detach()
        mine = ours[name].reshape(start.shape)
        assert (mine - theirs[name]).abs().max() < 0.01 * (mine - start).abs().max(), name
