"""Requirements of mechanisms and of the server's noise on the rest of an experiment."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedtext.adversaries import Collusion
from fedtext.aggregations import SumAggregation
from fedtext.config.compatibility.aggregation import is_mean, told
from fedtext.config.noise import BandedNoise, Correlated, Distributed
from fedtext.layout import TABLE
from fedtext.mechanisms.base import Mechanism, sensitivity
from fedtext.mechanisms.clip import Clip
from fedtext.methods.base import Method

if TYPE_CHECKING:
    from fedtext.audits.base import Audit
    from fedtext.config.settings import Settings


def uplink(e: "Settings") -> Iterator[str]:
    """Check the order of mechanisms, and the dimension of the embedding they are applied to."""
    for place, mechanism in enumerate(e.uplink):
        if problem := mechanism.order_problem(e.uplink[:place]) or mechanism.embedding_problem(e.model.embedding.dim):
            yield f"uplink: {problem}"


def server_noise(e: "Settings") -> Iterator[str]:
    """Check that the server's noise gives a guarantee: it is added to a sum of bounded updates."""
    method, participation = e.method, e.participation
    if not e.server.noise:
        return
    by_clients = isinstance(e.server.noise.mechanism, Distributed)
    if not method.shares:
        yield f"server.noise: method {method.name} sends no updates that noise could protect: leave it out"
        return
    if method.pooled:
        yield (
            f"server.noise: method {method.name} has all data in one place, where no noise protects them: leave it out"
        )
    if isinstance(e.aggregation, SumAggregation) and e.aggregation.scales():
        yield (
            f"server.noise: it is measured by the norm that clip leaves an update, and {told(e)} scales each at the "
            "server: leave out one of them"
        )
    elif not is_mean(e.aggregation):
        yield (f"server.noise: it is added to a sum of updates, and {told(e)} does not use one: leave out one of them")
    if sensitivity(e.uplink) is None:
        yield "server.noise: a client's part of the sum is not bounded: set clip as the last mechanism of uplink"
    if e.server.weights != "uniform":
        yield "server.noise: n_k-weighted updates have no common bound: set server.weights: uniform"
    if participation.apart is None and participation.sampling != "poisson" and not by_clients:
        yield (
            "server.noise: in a sample of fixed size another client takes the place of an absent one: set "
            "participation.sampling: poisson, or separated or epochs"
        )
    if participation.timed or (participation.availability and participation.sampling != "separated"):
        yield (
            "server.noise: the sum is divided by the expected number of clients, which is not known with "
            "participation.availability, deadline_s and over_selection: leave these out"
        )
    if participation.min_clients > 1 and not by_clients:
        yield (
            "server.noise: its guarantee is of rounds that are not repeated for who was in them: leave out "
            "participation.min_clients"
        )
    if e.shares_table and e.own_rows:
        yield "server.noise: own rows disclose the words of a client, and no noise hides them: set wire.rows: all"


def distributed_noise(e: "Settings") -> Iterator[str]:
    """Check that noise that clients add is hidden in a sum, and that it is known how much of it there is."""
    noise = e.server.noise
    if not noise or not isinstance(noise.mechanism, Distributed):
        return
    key = f"server.noise.mechanism: {noise.mechanism.name}"
    if not e.server.secure_aggregation:
        yield (
            f"{key}: each client adds a share of the noise, which hides nothing of its own update: set "
            "server.secure_aggregation, or mechanism: independent"
        )
    if e.participation.sampling == "poisson":
        yield (
            f"{key}: a Poisson sample may have any number of clients, and the server knows it, so that it amplifies "
            "nothing: set participation.sampling: fixed, separated or epochs"
        )
    if noise.cohort_size:
        yield f"{key}: server.noise.cohort_size scales noise that the server adds: leave out one of them"


_PARTS = (TABLE, "encoder.weight", "projection.weight", "head.weight")  # as parameters of networks are named


def _comes_and_goes(e: "Settings", parameter: str) -> bool:
    """Whether a parameter is shared in some rounds, and in others not."""
    if type(e.method).shared_in is Method.shared_in:
        return False
    return len({e.method.shared_in(parameter, round_) for round_ in range(1, e.training.rounds + 1)}) > 1


def correlated_noise(e: "Settings") -> Iterator[str]:
    """Check that a sensitivity is known for noise that depends on earlier rounds."""
    mechanism, apart = e.server.noise and e.server.noise.mechanism, e.participation.apart
    if not isinstance(mechanism, Correlated):
        return
    key = f"server.noise.mechanism: {mechanism.name}"
    if apart is None:
        yield (
            f"{key} needs to be known how many rounds lie between a client's participations, and in a sample by chance "
            "none may: set participation.sampling: separated or epochs, or mechanism: independent"
        )
    elif any(_comes_and_goes(e, name) for name in _PARTS):
        yield (
            f"{key}: method {e.method.name} shares some parameters only in some rounds, and the errors of noise that "
            "later rounds take away again are of all rounds: set mechanism: independent, or method.pretrain to 0 or to "
            "training.rounds"
        )
    elif isinstance(mechanism, BandedNoise) and mechanism.bands > apart:
        yield (
            f"{key}.bands: {mechanism.bands} are more than the {apart} rounds from one participation of a client to "
            "its next, for which no sensitivity is known: lower bands"
        )


def dp_sgd(e: "Settings") -> Iterator[str]:
    """Check that the gradient of each text is known by itself, and that nothing is trained beside it without noise."""
    if not e.training.dp_sgd:
        return
    key, method = "training.dp_sgd", e.method
    if method.pooled:
        yield f"{key}: method {method.name} has all texts in one place, where no update discloses them: leave it out"
    elif not type(method).by_text():
        yield (
            f"{key}: it clips the gradient of each text, and the objective of method {method.name} is of a batch as a "
            "whole: use fedavg, or another method whose objective is a mean over texts"
        )
    if len(method.phases(e.training.local_epochs)) > 1:
        yield (
            f"{key}: it counts the batches of one training, and a local update of method {method.name} has several "
            "parts: use another method"
        )
    if e.training.stack not in ("auto", 1):
        yield f"{key}: gradients are of one text at a time, and stacks of several clients: leave training.stack at auto"
    if e.digit_rows and e.shares_table:
        yield f"{key}: noise has to be on all rows, and {e.digit_rows} trains some by themselves: leave out one of them"


def adaptive_clip(e: "Settings") -> Iterator[str]:
    """Check that a norm that follows the updates is released with noise, and is that of every update."""
    if not any(isinstance(mechanism, Clip) and mechanism.adaptive for mechanism in e.uplink):
        return
    if any(isinstance(mechanism, Clip) and mechanism.adaptive for mechanism in e.uplink[:-1]):
        yield "uplink: clip.adaptive bounds what a client sends in the end: make it the last mechanism"
    if not e.server.noise:
        yield "uplink: clip.adaptive follows a noised share of the updates: set server.noise, or leave adaptive out"
    elif isinstance(e.server.noise.mechanism, Correlated):
        yield (
            f"uplink: clip.adaptive changes the norm from round to round, and noise of server.noise.mechanism "
            f"{e.server.noise.mechanism.name} is of one norm: set mechanism: independent, or leave adaptive out"
        )
    if e.adversaries and isinstance(e.adversaries.attack, Collusion):
        yield (
            f"uplink: clip.adaptive asks each client whether its update is within the norm, and adversaries of "
            f"{e.adversaries.attack.name} choose theirs behind it: leave out one of them"
        )


def frozen_embedding(e: "Settings") -> Iterator[str]:
    """Check that no noise moves a shared embedding that is not trained."""
    noisy = e.server.noise or any(mechanism.randomises for mechanism in e.uplink)  # dp_sgd has none on what is frozen
    if noisy and e.shares_table and e.training.optimizer.embedding_lr == 0:
        yield (
            "training.optimizer.embedding_lr: 0 does not keep a shared embedding unchanged, since noise moves it in "
            "every round: leave out embedding_lr, or the noise in uplink and server"
        )


def needs_table(e: "Settings") -> Iterator[str]:
    """Check that the embedding is shared if a mechanism or an audit needs it."""
    parts: list[Mechanism | Audit] = [*e.uplink, *e.audits]
    for part in parts:
        if part.needs_table and not e.shares_table:
            yield f"{part.name} needs a shared embedding, and {_without_table(e)}"


def _without_table(e: "Settings") -> str:
    """Return why no embedding is shared, and what to do, for a message."""
    if not e.method.shares or e.private(TABLE):
        return f"method {e.method.name} shares none: leave it out"
    fixing = "model.adapter" if getattr(e.model, "adapter", None) else f"model {e.model.name}"
    return f"{fixing} leaves the embedding as it is: leave out one of them"


def rows(e: "Settings") -> Iterator[str]:
    """Check which rows of the embedding are sent."""
    if e.wire.rows == "own" and e.language:
        yield (
            "wire.rows: own leaves out the words that a client does not have, and a language model moves those of the "
            "whole vocabulary: leave rows at auto"
        )
    elif e.wire.rows != "auto" and (e.method.pooled or not e.method.shares or e.method.private(TABLE)):
        yield (
            f"wire.rows: {e.wire.rows} is about rows of a shared embedding, and method {e.method.name} shares none: "
            "leave it out"
        )
    elif e.wire.rows != "auto" and not e.shares_table:
        yield f"wire.rows: {e.wire.rows} is about rows of a shared embedding, and {_without_table(e)}"
    if e.server.absent_rows == "holders_only" and not e.shares_table:
        yield f"server.absent_rows: holders_only is about rows of a shared embedding, and {_without_table(e)}"
    elif e.server.absent_rows == "holders_only" and not e.own_rows:
        yield "server.absent_rows: holders_only needs wire.rows: own, so that the server knows holders"


def shuffled(e: "Settings") -> Iterator[str]:
    """Check that the server needs no more than the numbers of bits that are set."""
    if not e.wire.shuffle:
        return
    if not e.uplink or type(e.uplink[-1]).shuffled is Mechanism.shuffled:
        yield "wire.shuffle: only bits gain by it: set randomized_response last in uplink, or leave shuffle out"
    if not is_mean(e.aggregation) or e.server.weights != "uniform":
        yield (
            "wire.shuffle: the server does not know whose a bit is, and cannot weigh it: set server.weights: uniform, "
            "and an aggregation that is the mean"
        )
    if e.shares_table and e.own_rows:
        yield "wire.shuffle: own rows name the words of a client, and no other client hides them: set wire.rows: all"
    if type(e.method).after_sending is not Method.after_sending:
        # Sums of several rounds would have less noise: with error feedback that of a round is taken back in the next.
        yield (
            f"wire.shuffle: with method {e.method.name} what clients send depends on the bits that they have sent "
            "before, which then hide no other client: use another method"
        )
    if audit := next((audit.name for audit in e.audits if audit.reads_updates), ""):
        yield f"wire.shuffle: {audit} attacks the update of one client, and the server sees none: leave out one of them"
    if e.adversaries and isinstance(e.adversaries.attack, Collusion):
        yield (
            f"wire.shuffle: adversaries of {e.adversaries.attack.name} replace updates that the server has received, "
            "and it sees none: use another attack"
        )


RULES = (shuffled, uplink, server_noise, distributed_noise, correlated_noise, adaptive_clip, dp_sgd, frozen_embedding)
ROWS = (rows,)
