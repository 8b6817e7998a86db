"""The word tables of checkpoints, and words that begin as the pieces that they are."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import transformers

from fedtext.corpora.prepare import prepare
from fedtext.errors import UserError
from fedtext.models.inits import CheckpointInit
from fedtext.models.transformer import TransformerClassifier
from fedtext.text import pretrained
from tests import tiny
from tests.checkpoints import PIECES

SHORT = {"max_length": 9, "clients": 2}


def test_words_start_from_the_pieces_that_they_are(checkpoint: Path) -> None:
    """Also of a model that is no transformer; other words are drawn, about as large."""
    init = {"checkpoint": {"source": str(checkpoint)}}
    made = tiny.experiment(corpus={"name": "demo"} | SHORT, model={"embedding": {"dim": 8, "init": init}})
    corpus = prepare(made.corpus, made.model.embedding, 0, None)
    theirs = transformers.AutoModel.from_pretrained(checkpoint).get_input_embeddings().weight.detach().numpy()
    assert corpus.table_VD is not None
    assert np.array_equal(corpus.table_VD[corpus.vocabulary.index("good")], theirs[PIECES.index("good")])
    drawn = corpus.table_VD[[row for row, word in enumerate(corpus.vocabulary) if row and word not in PIECES]]
    assert len(drawn) > 100
    assert drawn.std() == pytest.approx(theirs.std(), rel=0.3)
    made = tiny.experiment(model={"embedding": {"dim": 9, "init": init}})
    with pytest.raises(UserError, match=r"has word vectors of dimension 8 but model.embedding.dim is 9: set it to 8"):
        prepare(made.corpus, made.model.embedding, 0, None)


def test_a_word_table_is_read_without_the_other_weights(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = transformers.AutoModel.from_pretrained(checkpoint).get_input_embeddings().weight.detach().numpy()
    whole = pretrained.network
    monkeypatch.setattr(pretrained, "network", lambda checkpoint: pytest.fail("the network is loaded"))
    vectors = pretrained.word_vectors(str(checkpoint), 8)
    rows = dict(zip(vectors.words, vectors.vectors_WD, strict=True))
    assert np.array_equal([rows[piece] for piece in PIECES], expected)
    shutil.copytree(checkpoint, tmp_path / "copy")
    (tmp_path / "copy" / "model.safetensors").write_bytes(b"damaged")
    monkeypatch.setattr(pretrained, "network", whole)
    with pytest.raises(UserError, match="nothing that can be read in that folder"):
        pretrained.word_vectors(str(tmp_path / "copy"), 8)


def test_word_vectors_are_the_checkpoints_own_unless_another_is_named(checkpoint: Path) -> None:
    given = {"checkpoint": str(checkpoint)}
    for init, missing in (({"checkpoint": {"missing": "zero"}}, "zero"), ({"checkpoint": None}, "random")):
        made = TransformerClassifier.model_validate(given | {"embedding": {"dim": 8, "init": init}})
        assert made.embedding.init == CheckpointInit(source=str(checkpoint), missing=missing)
    named = {"checkpoint": {"source": "other"}}
    assert TransformerClassifier.model_validate(given | {"embedding": {"dim": 8, "init": named}}).embedding.init == (
        CheckpointInit(source="other")
    )
