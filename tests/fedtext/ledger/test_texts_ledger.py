"""The guarantee of a text (``training.dp_sgd``): where there is none, and what is outside of it."""

from fedtext.accounting.entry import Entry
from fedtext.ledger import ledger, spent
from tests import tiny
from tests.loops import nonempty


def test_pooled_vectors_leave_no_guarantee_of_a_text() -> None:
    training = tiny.TRAINING | {"dp_sgd": {"clip_norm": 1.0, "multiplier": 1.0}}

    def of_texts(corpus: str) -> list[Entry]:
        model = {"embedding": {"dim": 5, "init": {"word2vec": {"corpus": corpus}}}, "hidden": 4}
        made = ledger(tiny.experiment(training=training, model=model), 100, 10, 25)
        return [entry for entry in made if entry.unit == "text"]

    (unlabeled,), (train,) = of_texts("unlabeled"), of_texts("train")
    assert spent([unlabeled])["epsilon_text"] > 0
    assert spent([train]) == {}
    assert not train.holds
    assert train.how == "no guarantee: word vectors were trained on all clients' texts"


def test_texts_decide_on_the_words_that_their_client_knows() -> None:
    training = tiny.TRAINING | {"dp_sgd": {"clip_norm": 1.0, "multiplier": 1.0}}
    corpus = {"name": "demo", "max_length": 9, "min_count": 2}
    for method, own in nonempty([("lg_fedavg", True), ("fedavg", False)]):
        made = tiny.experiment(method, training=training, corpus=corpus | ({"own_vocabularies": True} if own else {}))
        (entry,) = [entry for entry in ledger(made, 100, 10, 25) if entry.unit == "text"]
        assert (
            entry.assumptions.endswith(", the words that its client knows, on which all of the client's texts decide")
            == own
        )


def test_what_a_text_is_is_said_where_it_is_a_part_of_what_people_wrote() -> None:
    training = tiny.TRAINING | {"dp_sgd": {"clip_norm": 1.0, "multiplier": 1.0}}
    language = {"model": {"name": "gru_lm", "embedding": {"dim": 4}, "hidden": 4}, "evaluation": {"personalize": None}}
    said = {}
    for sentences in nonempty(("stops", "lines")):
        corpus = {"name": "ptb", "sentences": sentences}
        (entry,) = [
            e
            for e in ledger(tiny.experiment(training=training, corpus=corpus, **language), 9, 10, 25)
            if e.unit == "text"
        ]
        said[sentences] = entry.assumptions
    assert "a text is a sentence (corpus.sentences: stops), of which a line" in said["stops"]
    assert "a text is a line (corpus.sentences: lines): what consists of several texts has a weaker" in said["lines"]
    (entry,) = [e for e in ledger(tiny.experiment(training=training), 9, 10, 25) if e.unit == "text"]
    assert "a text is" not in entry.assumptions
