"""How unevenly classes lie with clients: in figures, in a table, in a picture."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from platform.corpora import main

import numpy as np
import pytest

from dashboards.partition import picture
from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.skew import Skew, effective
from fedtext.corpora.statistics import render
from fedtext.errors import UserError
from fedtext.models.base import Embedding

SKEW = Skew(np.array([[4, 4, 0, 0], [2, 2, 2, 2], [0, 0, 0, 1]]), np.array([[3, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 9]]))


def test_figures_by_hand() -> None:
    assert effective(SKEW.train_KC) == pytest.approx([2, 4, 1])
    assert effective(np.array([[3, 1]])) == pytest.approx([np.exp(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))])
    assert SKEW.apart.tolist() == [0.25, 0, 0]
    assert SKEW.cells() == [("2.0", "▄▄··"), ("4.0", "▂▂▂▂"), ("1.0", "···█"), ("3.6", "▃▃▁▂")]  # 6, 6, 2 and 3 of 17
    classes, sizes = SKEW.sentences()
    assert "2.3 on average (1.0 to 4.0)" in classes
    assert "1 to 8 train and 4 to 9 test texts for each client" in sizes
    assert "test texts: 8.3% on average, 25.0% at most" in sizes


def test_too_many_classes_are_counted_and_not_shown() -> None:
    many = Skew(np.ones((2, 41), np.int64), np.ones((2, 41), np.int64))
    assert many.cells() == [("41.0", "")] * 3


def test_a_corpus_is_counted_as_it_is_trained_on() -> None:
    corpus = prepare(DemoCorpus(clients=3, train=50, validation=0.2), Embedding(), 0, None)
    skew = Skew.of(corpus)
    assert skew.train_KC.sum(1).tolist() == [report.train for report in corpus.report] == [40] * 3
    assert skew.test_KC.sum(1).tolist() == [100] * 3
    assert skew.train_KC[:, 1].tolist() == [int(client.train.labels_N.sum()) for client in corpus.clients]
    assert render(corpus).splitlines()[2].split()[-2:] == [*skew.cells()[0]]


def test_the_picture_is_an_svg_with_the_figures_of_the_corpus() -> None:
    corpus = prepare(DemoCorpus(clients=3, train=20, test=10), Embedding(), 0, None)
    drawn = picture(corpus)
    assert ET.fromstring(drawn).tag.endswith("svg")
    assert "demo: 3 clients of 20 to 20 train texts and 2.0 of 2 classes" in drawn  # beside the letters' outlines
    assert corpus.clients[2].name in drawn
    assert drawn.count("<image") >= 2


def test_long_names_of_clients_have_room_in_the_picture(recwarn: pytest.WarningsRecorder) -> None:
    corpus = prepare(DemoCorpus(clients=3, train=20, test=10), Embedding(), 0, None)
    clients = [replace(client, name=f"{place} {'W' * 80}") for place, client in enumerate(corpus.clients)]
    picture(replace(corpus, clients=clients))
    assert [str(warning.message) for warning in recwarn] == []


def test_a_name_of_two_lines_is_on_one_in_the_table() -> None:
    corpus = prepare(DemoCorpus(clients=3, train=20, test=10), Embedding(), 0, None)
    report = [replace(one, name=f"a\nb{place}") for place, one in enumerate(corpus.report)]
    lines = render(replace(corpus, report=report)).splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["a\\nb0", "a\\nb1", "a\\nb2"]


def test_the_command_shows_the_table_and_writes_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["demo.yaml", "corpus.clients=4", "--picture", str(tmp_path / "p.svg")]) == 0
    assert "classes: exp(entropy) over a client's train texts, 2.0 on average" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "p.svg").read_text()
    with pytest.raises(UserError, match=r"nowhere/p\.svg cannot be written \(No such file"):
        main(["demo.yaml", "--picture", str(tmp_path / "nowhere" / "p.svg")])
    with pytest.raises(UserError, match="those of a language model have none: leave it out"):
        main(["fedatt.yaml", "--picture", str(tmp_path / "p.svg")])


def test_the_command_lists_each_client_where_asked_and_of_a_corpus_in_memory(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = ["demo.yaml", "corpus={name: demo, clients: 51, train: 4, test: 2}"]
    assert main(small) == 0
    assert "appliances-2" not in capsys.readouterr().out
    assert main([*small, "--each"]) == 0
    assert "appliances-2" in capsys.readouterr().out
    forum = "corpus={name: forum, clients: 4, storage: disk}"
    with pytest.raises(UserError, match="of a corpus on disk there are quantiles alone: add"):
        main(["stackoverflow.yaml", forum, "--each"])


def test_the_command_says_how_many_words_have_vectors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text("{name: x, method: fedavg, corpus: {name: demo, clients: 3}, model: {embedding: {dim: 2}}}")
    assert main([str(path)]) == 0
    assert "word vectors" not in capsys.readouterr().out
    words = prepare(DemoCorpus(clients=3), Embedding(dim=2), 0, None, audited=False).vocabulary[2:]
    (tmp_path / "vectors.txt").write_text("".join(f"{word} 1 2\n" for word in words[:-3]), encoding="utf-8")
    assert main([str(path), f"model.embedding.init={{file: {{path: {tmp_path / 'vectors.txt'}}}}}"]) == 0
    assert f"{1 - 3 / len(words):.1%} of the vocabulary" in (said := capsys.readouterr().out)
    assert "3 words have none." in said
    assert main([str(path), "model.embedding.init={file: {path: nowhere.txt}}"]) == 0
    assert "word vectors: " in (said := capsys.readouterr().out)
    assert "nowhere.txt" in said
