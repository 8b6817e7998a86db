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
