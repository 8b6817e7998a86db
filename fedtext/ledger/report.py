"""The privacy report: sentences on what a run discloses and guarantees, printed at its start and stored with it."""

from collections.abc import Iterator, Mapping, Sequence

from fedtext.accounting.entry import Entry, Measured
from fedtext.adversaries import Collusion
from fedtext.config.experiment import Experiment
from fedtext.layout import TABLE
from fedtext.ledger import hidden
from fedtext.ledger.distributed import is_distributed
from fedtext.ledger.together import Trial, together
from fedtext.mechanisms.base import bounds
from fedtext.methods.state import Tensors
from fedtext.metrics.wording import format_epsilon
from fedtext.models.inits import Word2VecInit, has_vectors
from fedtext.models.language import LanguageConfig
from fedtext.text.representation import BPE

SUMS = (
    "server.secure_aggregation: the server sees each update behind masks, and the sum of the updates of a round; what "
    "is said here of rows and words is of the clients of a round together. It is a server that follows the protocol: "
    "keys are not signed, so that one that puts its own in their place would see updates"
)

_VECTORS_READ = "beside its own a client reads the words of the vectors that it starts from"
NOISED = "server.noise: each client adds its share of the noise before the masks: the server sees no sum without it"
UNMASKED = (
    "server.secure_aggregation.masks: false: the server sees each update, in integers without masks; this is for "
    "comparison"
)


def reveals(experiment: Experiment, entries: Sequence[Entry] = ()) -> list[str]:
    """Return sentences on what the server learns in this experiment, and on the guarantees in its ledger.

    Args:
        experiment: The experiment.
        entries: The entries of its ledger.
    """
    if experiment.method.pooled:
        return [f"{experiment.method.name}: all training texts lie in one place; there is no privacy to speak of"]
    if not experiment.method.shares:
        counted = experiment.corpus.counts_words and not experiment.own_vocabularies
        words = "words" if experiment.corpus.releases else "word counts"
        counts = f"its {words}, for the vocabulary, and " if counted else ""
        if isinstance(experiment.corpus.text, BPE) and experiment.corpus.text.of_clients:
            counts = "its train texts, for the tokenizer, and "
        following = [*_prepared(experiment)[1:], *_handed_over(experiment)]
        more = ", and what follows" if set(following) - {_VECTORS_READ} else ""
        return [f"nothing leaves a client but {counts}the metrics that are reported{more}", *following]
    metrics = (
        "its perplexities, with how many words and bytes they are of and how many words were guessed"
        if experiment.language
        else "its accuracies; of two classes also every test text's score and label, for the area under the curve"
    )
    learns = f"the server learns each client's number of train texts, its training losses and {metrics}"
    said = [*_attacked(experiment), *_prepared(experiment), learns, *_handed_over(experiment)]
    noisy = any(mechanism.randomises for mechanism in experiment.uplink)
    if experiment.audits:
        said.append(
            "audits write words of clients, and texts as far as they were recovered, into the results, for study: no "
            "deployment would"
        )
    if canaries := experiment.privacy.canaries:
        there = "about half of them are in its sums" if experiment.server.noise else "they are in no sum"
        said.append(f"privacy.canaries: {canaries.clients:,} clients without texts measure epsilon; {there}")
    secure = experiment.server.secure_aggregation
    if secure:
        said.append(SUMS if secure.masks else UNMASKED)
    said += _table(experiment, noisy)
    if not noisy and not experiment.server.noise:
        said += _next_words(experiment)
    if beside := ", ".join(experiment.method.extras(Tensors())):
        said.append(
            f"beside its update a client sends {beside} (method {experiment.method.name}); mechanisms of the uplink "
            "and the ledger cover both"
        )
    if not experiment.aggregation.sums:
        aggregation = experiment.aggregation
        said.append(f"{aggregation.name}: the server reads each client's update by itself; {aggregation.secure}")
    if is_distributed(experiment):
        said.append(NOISED)
    if experiment.server.noise and not (secure and secure.masks):
        said.append("the server sees each clipped update as it is: only what comes of their sum is protected by noise")
    for place, (mechanism, before) in enumerate(zip(experiment.uplink, bounds(experiment.uplink), strict=False)):
        said += mechanism.sentences(before, hidden(experiment, place))
    return said + guarantees(entries)


def _handed_over(experiment: Experiment) -> Iterator[str]:
    """Yield sentences on what leaves clients for an evaluation, or with the model that is saved."""
    if experiment.evaluation.union:
        yield (
            "evaluation.union: each client's own model is evaluated on the test texts of all clients, for which models "
            "or texts leave their clients"
        )
    if experiment.save.model == "clients":
        yield "save.model: clients: the model folder has the private parameters of each client, which nothing protects"


def _attacked(experiment: Experiment) -> Iterator[str]:
    """Yield sentences on the clients that attack."""
    asked = experiment.adversaries
    if asked and asked.fraction:
        yield (
            f"adversaries: {asked.fraction:.0%} of the clients attack the training ({asked.attack.name}); what is said "
            "here of clients is said of the others"
        )
        if isinstance(asked.attack, Collusion):
            yield f"{asked.attack.name}: the server receives each update by itself, and computes those of adversaries"


def _table(experiment: Experiment, noisy: bool) -> list[str]:
    """Return sentences on what the rows of the embedding table disclose.

    Args:
        experiment: The experiment.
        noisy: Whether a mechanism of the uplink adds noise.
    """
    said = []
    if experiment.method.withholds:
        said.append(
            "rows of words with a digit in them are neither sent nor asked for"
            if experiment.own_rows
            else "rows of words with a digit in them are sent as zeros"
        )
        if experiment.corpus.counts_words and not experiment.corpus.releases:
            said.append("yet these words were counted for the vocabulary: the server knows which of them occur at all")
    if not experiment.shares_table:
        said.append("no embedding table leaves a client")
    elif experiment.own_rows:
        said.append("wire.rows: own: the rows a client sends and asks for name the words in its texts")
        if noisy:
            said.append("the noise hides how far those rows moved, not which they are: wire.rows: all would")
    elif not noisy and not (experiment.server.noise or experiment.training.dp_sgd or experiment.language):
        said.append(
            "wire.rows: all without noise: the rows that changed still name the words in a client's train texts"
        )
    if experiment.shares_table and not experiment.shared_in(TABLE, experiment.training.rounds):
        said.append("the embedding is sent in the first rounds alone (method.pretrain): what is said of it is of these")
    return said


def guarantees(entries: Sequence[Entry]) -> list[str]:
    """Return a ledger as sentences: one with the epsilons of each mechanism, and one for each assumption."""
    said = []
    for mechanism in dict.fromkeys(entry.mechanism for entry in entries):
        epsilons = "; ".join(_epsilon(entry) for entry in entries if entry.mechanism == mechanism)
        said.append(f"ledger: {mechanism}: {epsilons}")
    said += [_measured(entry.mechanism, entry.measured) for entry in entries if entry.measured]
    assumed = dict.fromkeys(entry.assumptions for entry in entries if entry.assumptions)
    return said + [f"ledger: {assumptions}" for assumptions in assumed]


def _measured(mechanism: str, measured: Measured) -> str:
    said = (
        f"ledger: {mechanism}: measured in the run: epsilon is at least {format_epsilon(measured.epsilon)} with "
        f"{measured.confidence:.0%} confidence ({measured.right} of {measured.guesses} guesses about "
        f"{measured.canaries:,} canaries are right)"
    )
    if measured.gaussian is not None:
        said += f", {format_epsilon(measured.gaussian)} if its trade-off curve is that of Gaussian noise"
    return said


def of_trials(trials: Sequence[Trial]) -> list[str]:
    """Return sentences on the guarantee of all trials on the same clients together, for clients with several trials.

    Each names its trials by their seeds, and by keys of the corpus where these tell clients apart. Equal guarantees, as
    those of seeds that split the texts in different ways, are said once.

    Args:
        trials: The trials. Those without ``server.noise`` are in no group.
    """
    groups = list(together(trials))
    counted = [trial for _, group in groups for trial in group]
    about: dict[str, list[str]] = {}
    for entry, group in groups:
        if len(group) > 1:
            about.setdefault(_together(entry), []).append(f"the {len(group)} of {_named(group, counted)} together")
    return [
        f"trials with server.noise on the same clients: {', and '.join(named)}: {said}" for said, named in about.items()
    ]


def _together(entry: Entry) -> str:
    said = entry.how
    if entry.epsilon is not None:
        said = f"epsilon = {format_epsilon(entry.epsilon)} at delta = {entry.delta:g}"
    return said + (f" ({entry.assumptions})" if entry.assumptions else "")


def _named(group: Sequence[Trial], trials: Sequence[Trial]) -> str:
    """Return what the trials of a group have in common: seeds, and the keys of the corpus in which others differ."""
    seeds = [str(seed) for seed in sorted({trial.experiment.seed for trial in group})]
    named = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(seeds[:-1])} and {seeds[-1]}"
    inside, overall = _keys(group), _keys(trials)
    return ", ".join([named, *(f"corpus.{key}={min(inside[key])}" for key in inside if _tells(inside, overall, key))])


def _keys(trials: Sequence[Trial]) -> dict[str, set[str]]:
    """Return the values of the keys of the trials' corpora."""
    found: dict[str, set[str]] = {}
    for trial in trials:
        for key, value in trial.experiment.corpus:
            found.setdefault(key, set()).add(str(value))
    return found


def _tells(inside: Mapping[str, set[str]], overall: Mapping[str, set[str]], key: str) -> bool:
    return len(inside[key]) == 1 < len(overall[key])


def _epsilon(entry: Entry) -> str:
    if entry.epsilon is None:
        return entry.how
    at = f" at delta = {entry.delta:g}" if entry.delta else ""
    of = {"run": "the whole run", "text": "each text in the whole run"}.get(entry.unit, f"each {entry.unit}")
    return f"epsilon = {format_epsilon(entry.epsilon)}{at} for {of} ({entry.how})"


def _next_words(experiment: Experiment) -> Iterator[str]:
    """Yield sentences on what the embedding and the output layer of a language model disclose without noise.

    The gradient of the output bias of a word is the sum over tokens of p - 1[the token is the word].
    """
    model, private = experiment.model, experiment.private
    if not isinstance(model, LanguageConfig):
        return
    if experiment.shares_table:
        yield (
            "without noise the rows of the words in a client's train texts stand out, though the softmax moves all"
            if model.tied
            else "without noise the embedding rows that changed name the words in a client's train texts"
        )
    layer = ["head.weight"] * (not model.tied) + ["head.bias"] * model.biased
    if output := [name for name in layer if not (private(name) or model.fixes(name))]:
        yield (
            f"without noise the output layer ({', '.join(output)}) tells which words a client's train texts have and "
            "how often: a step moves each word by how much oftener it came than the model expected"
        )


def _prepared(experiment: Experiment) -> list[str]:
    """Return sentences on what clients disclose before the first round, beginning with the source of the vocabulary."""
    corpus, sources = experiment.corpus, experiment.model.embedding.sources
    said = [f"the vocabulary is public {corpus.text.units}: nothing about a client's words is asked for it"]
    if experiment.own_vocabularies:
        said = [
            "each client builds its vocabulary from its own train texts, and no one else knows which words are in it"
        ]
        drawn = experiment.model.embedding.own
        if has_vectors(sources) and (drawn is None or drawn.words != "all"):
            said.append(_VECTORS_READ)
    elif corpus.releases:
        said = [f"the vocabulary is released from every client's words, with a guarantee ({corpus.releases.name})"]
    elif corpus.counts_words:
        said = ["the vocabulary is built from every client's word counts, which are summed without protection"]
    elif isinstance(corpus.text, BPE) and corpus.text.of_clients:
        said = ["the tokenizer is trained on all clients' train texts in one place, without protection"]
    trained = [s.corpus for s in sources if isinstance(s, Word2VecInit) and s.corpus != "unlabeled"]
    if trained:
        whose = "train and test" if "full" in trained else "train"
        said.append(f"word vectors are trained on all clients' {whose} texts in one place: there is no privacy in that")
    if any(isinstance(source, Word2VecInit) and source.corpus == "unlabeled" for source in sources):
        said.append("word vectors are trained on the unlabeled texts in one place, as if these were public")
    if corpus.scales_features:
        said.append("features are scaled by the least and the greatest value of all clients' train texts")
    if corpus.names_classes:
        said.append(
            "the classes of the model are the labels of all clients' texts, also one that a single client has, unless "
            "corpus.classes lists them"
        )
    return said
