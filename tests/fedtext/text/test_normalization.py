"""Words of texts with typographic marks, in training and in predictions alike."""

from pathlib import Path
from typing import Any

import pytest

from fedtext.config.experiment import Experiment
from fedtext.corpora.demo import DemoCorpus
from fedtext.corpora.encoding import cleaned, rows_of
from fedtext.corpora.fdu import FDUCorpus
from fedtext.corpora.iyy import IYYCorpus
from fedtext.corpora.prepare import prepare
from fedtext.corpora.ptb import PTBCorpus
from fedtext.corpora.table import TableCorpus
from fedtext.corpora.types import RawCorpus
from fedtext.corpora.vectors import texts_for_vectors
from fedtext.models.base import Embedding
from fedtext.state.fingerprint import fingerprint, named
from fedtext.text.normalization import normalized
from fedtext.text.representation import Words
from fedtext.text.tokens import Unlabeled
from fedtext.text.vocabulary import WordIndex
from tests import tiny
from tests.loops import nonempty

TYPED = [  # as a phone writes it, and as one types it in ASCII
    ("It\u2019s \u201cOK\u201d, isn\u2019t it\u2026", "It's \"OK\", isn't it..."),
    ("\u2018Yes\u2019 \u2013 no\u2014never", "'Yes' - no--never"),
    ("don\u00b4t, 5\u203210\u2033, 1990\u20131995", "don't, 5'10\", 1990-1995"),
    ("\u00abQuoi\u00bb \u2039a\u203a \u201eb\u201c", '"Quoi" \'a\' "b"'),
    ("\uff21\uff22\uff23 \uff11\uff12\uff1a\uff13\uff10", "ABC 12:30"),
    ("zero\u200bwidth so\u00adft \ufeffmark\u200e", "zerowidth soft mark"),
    ("a\u00a0b", "a b"),
]


@pytest.mark.parametrize(("given", "typed"), TYPED)
@pytest.mark.parametrize("how", [{}, {"treebank": True}, {"letters": True}, {"stopwords": "drop"}], ids=str)
def test_typographic_marks_are_those_of_ascii(given: str, typed: str, how: dict[str, Any]) -> None:
    assert Words(normalize=True, **how).clean(given).split() == Words(**how).clean(typed).split()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u4f60\u597d , \u4e16\u754c \u3002"),
        ("\u300c\u771f\u7684\u300d\uff1f\u597d\uff01", "\u300c \u771f\u7684 \u300d ? \u597d !"),
        (
            "\u0645\u0631\u062d\u0628\u0627\u060c \u0643\u064a\u0641\u061f",
            "\u0645\u0631\u062d\u0628\u0627 \u060c \u0643\u064a\u0641 \u061f",
        ),
        (
            "\u00bfQu\u00e9? \u0928\u092e\u0938\u094d\u0924\u0947\u0964",
            "\u00bf Qu\u00e9? \u0928\u092e\u0938\u094d\u0924\u0947 \u0964",
        ),
        ("cafe\u0301 col\u00b7lecci\u00f3", "caf\u00e9 col\u00b7lecci\u00f3"),
    ],
)
def test_punctuation_of_other_scripts_is_set_apart(given: str, words: str) -> None:
    assert Words(normalize=True).clean(given).split() == words.split()


def test_a_text_is_normalized_once_and_for_all() -> None:
    codes = (*range(0x3400), *range(0xF900, 0x10000), *range(0x1F000, 0x1F300))  # all that NFKC or a table changes
    once = normalized("\n".join(f"a{chr(code)}b" for code in codes))
    assert normalized(once).split() == once.split()


def test_without_the_key_texts_are_as_they_were() -> None:
    for given, _ in nonempty(TYPED):
        assert Words().clean(given) == given


def test_a_test_text_is_the_same_words_where_it_is_predicted(tmp_path: Path) -> None:
    rows = "".join(f'"{given.replace(chr(34), chr(34) * 2)} {n}",{n % 2}\n' for n, (given, _) in enumerate(TYPED * 3))
    (tmp_path / "r.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    text = {"words": {"treebank": True, "normalize": True}}
    config = TableCorpus.model_validate({"path": str(tmp_path / "r.csv"), "clients": 1, "text": text})
    corpus = prepare(config, Embedding(dim=2), 0, None)
    (client,), index = config.read(None, 0).clients, WordIndex(corpus.vocabulary)
    for raw in (client.test.texts, [typed for _, typed in TYPED]):
        texts = [cleaned(config, text, index) for text in raw]
        assert texts == [cleaned(config, text, index, tokenized=True) for text in raw]
    tokens_T, _ = rows_of([cleaned(config, text, index) for text in client.test.texts], config, index, "")
    assert tokens_T.tolist() == corpus.tests[0].tokens_T.tolist()
    assert "'s" in corpus.vocabulary


@pytest.mark.parametrize("corpus", [DemoCorpus, IYYCorpus])
def test_raw_texts_are_normalized_before_they_become_words_of_a_corpus(corpus: Any) -> None:
    config = corpus(text={"words": {"normalize": True}})
    assert cleaned(config, "It\u2019s \u201cOK\u201d\u2026", WordIndex(["<pad>", "<unk>"])) == "it 's `` ok '' ..."


def test_texts_for_word_vectors_are_normalized_before_they_are_tokenized(monkeypatch: pytest.MonkeyPatch) -> None:
    config = FDUCorpus.model_validate({"text": {"words": {"normalize": True}}})
    monkeypatch.setattr(FDUCorpus, "read_unlabeled", lambda *_: [Unlabeled("It\u2019s OK", raw=True)])
    (found,) = texts_for_vectors(config, None, 0, RawCorpus("fdu", 2, []), "unlabeled")
    assert found.words() == ["it", "'s", "ok"]


def test_a_language_model_predicts_words_as_they_are() -> None:
    with pytest.raises(ValueError, match="not buckets, letters or normalized words: leave text out"):
        PTBCorpus(text={"words": {"normalize": True}})  # type: ignore[arg-type]


def test_experiments_without_the_key_have_the_digests_that_they_had() -> None:
    def experiment(text: dict[str, Any]) -> Experiment:
        return tiny.configured(corpus={"name": "demo", "text": {"words": text}})

    before, after = experiment({}), experiment({"normalize": True})
    assert named(before, {"corpus"})["corpus"]["text"]["words"].keys() == {"letters", "treebank", "stopwords"}
    assert fingerprint(before, "content", 4) != fingerprint(after, "content", 4)
