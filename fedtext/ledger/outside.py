"""The data that a client discloses outside of all mechanisms and guarantees."""

from typing import TYPE_CHECKING

from fedtext.models.inits import RandomInit, Word2VecInit
from fedtext.text.representation import BPE

if TYPE_CHECKING:
    from fedtext.config.experiment import Experiment


def outside(experiment: "Experiment") -> str:
    """List this data in one sentence. A published model may depend on it too."""
    corpus, evaluation = experiment.corpus, experiment.evaluation
    listed = []
    if corpus.counts_words and not experiment.own_vocabularies:
        listed.append(
            "its words, to the server that adds them up for the private vocabulary"
            if corpus.releases
            else "its word counts, for the vocabulary and word vectors"
        )
    if isinstance(corpus.text, BPE) and corpus.text.of_clients:
        listed.append("its train texts, on which the tokenizer is trained in one place")
    sources = experiment.model.embedding.sources
    if any(isinstance(source, Word2VecInit) and source.corpus == "unlabeled" for source in sources):
        listed.append("its unlabeled texts, on which word vectors are trained in one place")
    if experiment.own_vocabularies and any(
        not isinstance(source, RandomInit) and source.missing == "random" for source in sources
    ):
        listed.append("its part in the standard deviation with which rows of words without a vector are drawn")
    if corpus.scales_features:
        listed.append("the minimum and maximum of its features")
    if corpus.names_classes:
        listed.append("the labels of its texts, which with those of all others are the classes of the model")
    listed.append("its name, beside its metrics")
    listed += ["the number of its texts", "its training losses", "the time that its local updates take"]
    listed.append("how many clients take part in a round or fail in it")
    if experiment.server.secure_aggregation:
        listed.append("the share of its update that is cut off at the range of integers")
    listed += [f"what {mechanism.name} reports" for mechanism in experiment.uplink if mechanism.reports]
    if experiment.language:
        listed.append("its perplexities and token counts in evaluations")
        listed.append("the unigram baseline's perplexity, from all word counts")
    else:
        listed.append("its accuracies in evaluations, and of two classes each text's score and label")
    if evaluation.union:
        listed.append("its test texts or its model, to evaluate each client's model on all texts (evaluation.union)")
    if evaluation.select != "last":
        listed.append("the choice of the round, which these make (evaluation.select)")
    if experiment.audits:
        listed.append("what audits write")
    if experiment.save.model == "clients":
        listed.append("its private parameters, in the model folder (save.model: clients)")
    return "outside of it: " + ", ".join(listed)
