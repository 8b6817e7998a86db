"""Every metric of the project."""

from functools import partial

from fedtext.metrics.metric import LATE, Metric
from fedtext.metrics.privacy import ATTACKS, PRIVACY

_score = partial(Metric, validation=True, columns="all")
_union = partial(Metric, when=LATE, columns="all")
_best = partial(Metric, when="every round", columns="none")
_perplexity = partial(_score, unit="perplexity", better="smaller")
_bits = partial(_score, unit="bits", better="smaller", columns="test")
_nats = partial(_score, unit="nats", better="smaller", columns="none")
_loss = partial(Metric, kind="training", unit="nats", better="smaller", when="every round")
_traffic = partial(Metric, kind="traffic", unit="bytes", better="smaller", when="every round")
_server = partial(Metric, kind="server", unit="number", better="neither", when="every round")
_combined = partial(_server, by_parts=True)  # of an aggregation, or of a mechanism
_cost = partial(Metric, kind="cost", unit="seconds", better="smaller", when="every round")
_sweep = partial(Metric, kind="sweep", unit="number", better="neither", when="end of the sweep")

BYTES = (
    "The sum of all nats, divided by ln 2 and by the bytes of the sentences: their words in UTF-8 as the corpus has "
    "them, also those that are <unk>, the blanks between them, and one byte for the end. Models whose tokens differ "
    "can be compared by it if none of them has <unk>, which costs less than the word it stands for."
)
_UNION = "With evaluation.union (FedeVocab paper, section 4.3); all branches of a model together."
_BEST = (
    "With evaluation.union.best_round: after each round the clients that took part in it are evaluated, and the best "
    "value of each counts, as FedeVocab's published code has it. Test texts choose the round, so that it is above what "
    "any model of the run has, if all clients take part in every round; of a client that took part in early rounds "
    "alone only these count. It is no metric to choose trials by."
)
_BESIDE = "Without secure_bytes_up and secure_bytes_down."
_PER_CLIENT = f"What was sent to late and failed clients counts too, so that one client exchanges less. {_BESIDE}"
# In the order of a table's columns. The first one that matches a name counts.
METRICS: list[Metric] = [
    _score(
        "Ag",
        "accuracy of the shared model on each client's own texts, mean over clients",
        "KTEPS paper, equations 14 and 15. In a method with two branches that of the shared one; in local_only that of "
        "each client's own model. Methods whose shared parameters are no complete model have Ap_0 instead.",
    ),
    _score(
        "Ap",
        "accuracy of each client's personalised model on its own texts, mean over clients",
        "After the last round each client fine-tunes a copy of all its parameters on its train texts "
        "(evaluation.personalize); Ap is the mean of the accuracies along the way (KTEPS paper, equation 16).",
        when=LATE,
    ),
    _score(
        "Ap_0",
        "accuracy of each client's model before it is fine-tuned, mean over clients",
        "With shared and private parameters, in methods whose shared parameters are no complete model.",
    ),
    _score("Ap_<variation>", "Ap under another way of fine-tuning (evaluation.personalize.also)", when=LATE),
    _score("Local", "accuracy of each client's own model on its own texts, mean over clients", _UNION, when=LATE),
    _union("Global", "accuracy of each client's own model on the texts of all clients, mean over clients", _UNION),
    _union("Local_p10", "the Local accuracy that nine clients in ten reach", _UNION),
    _union("Global_geometric", "geometric mean of the clients' Global accuracies", _UNION, columns="none"),
    _best("Local_best_round", "Local of each client's best round, mean over clients", _BEST),
    _best("Global_best_round", "Global of each client's best round, mean over clients", _BEST),
    _score(
        "AUC",
        "area under the ROC curve of the shared model, over the texts of all clients together",
        "With two classes.",
    ),
    _score(
        "AUC_0",
        "area under the ROC curve of the clients' models before they are fine-tuned, over all texts",
        "With two classes, in methods whose shared parameters are no complete model.",
    ),
    Metric(
        "backdoor_success",
        "share of texts of other classes that the shared model takes for the target of a backdoor, with its trigger",
        "Of the honest clients' test texts, mean over these clients (adversaries.attack: backdoor).",
        better="smaller",
        columns="test",
    ),
    _perplexity("perplexity_p90", "the perplexity that nine clients in ten do not exceed", columns="test"),
    _perplexity(
        "perplexity_p90_<model>",
        "perplexity_p90 of the model named: Ap, personalised; unigram, word counts alone",
        columns="test",
    ),
    _perplexity(
        "perplexity",
        "exp(mean nats per predicted token) of the shared model, over the tokens of all clients that are evaluated",
        "The end of a sentence is predicted as well.",
    ),
    _perplexity("perplexity_<model>", "perplexity of the model named: Ap, personalised; unigram, word counts alone"),
    _bits("bits_per_byte", "bits of the shared model over the bytes of the sentences", BYTES),
    _bits("bits_per_byte_<model>", "bits_per_byte of the model named: Ap, personalised; unigram, word counts alone"),
    _nats("nats_per_token", "mean nats per predicted token of the shared model", "Its exp is perplexity."),
    _nats("nats_per_token_<model>", "nats_per_token of the model named: Ap, personalised; unigram, word counts alone"),
    _score("top1", "share of tokens that are the most probable by the shared model", columns="none"),
    _score("top1_<model>", "top1 of the model named: Ap, personalised; unigram, word counts alone", columns="none"),
    _score("top3", "share of tokens that are among the three most probable by the shared model", columns="test"),
    _score("top3_<model>", "top3 of the model named: Ap, personalised; unigram, word counts alone", columns="test"),
    Metric(
        "alpha_unigram",
        "count that the unigram model adds to that of every word",
        "Chosen on validation texts, if there are some.",
        unit="number",
        better="neither",
        when="evaluated rounds",
    ),
    Metric(
        "selected_round",
        "the round whose model evaluation.select has chosen on validation texts",
        "Test texts are then evaluated once, after the last round, by this model.",
        unit="rounds",
        better="neither",
        when=LATE,
    ),
    *ATTACKS,
    *PRIVACY,
    _loss(
        "loss",
        "the objective that clients minimise: the weighted sum of the loss terms, mean over train texts",
        "Over all batches of the round, while the parameters change; clients are weighted by their numbers of texts.",
    ),
    _loss("loss_ce", "mean cross-entropy"),
    _loss("loss_ce_mixture", "mean cross-entropy of the mixture of shared and personal model (apfl)"),
    _loss(
        "loss_ce_shared", "mean cross-entropy of the shared branch (kteps) or of the shared model (pfl_da, ditto, apfl)"
    ),
    _loss("loss_ce_private", "mean cross-entropy of the private branch (kteps) or of the personal model (ditto)"),
    _loss("loss_transfer", "knowledge transfer, equation 8, without its weight lambda1 (kteps)"),
    _loss(
        "loss_diversity",
        "HSIC of both branches' features, equation 7, without its weight lambda2 (kteps)",
        unit="number",
    ),
    _loss(
        "loss_proximal",
        "squared distance from the received parameters, without its weight mu / 2 (fedprox) or lambda / 2 (ditto, of "
        "the personal model)",
        unit="number",
    ),
    _loss(
        "loss_mmd", "squared maximum mean discrepancy of features, without its weight lambda (fedmmd)", unit="number"
    ),
    _loss("loss_adversarial", "cross-entropy of the task discriminator, without its weight adv (asp_mtl)"),
    _loss(
        "loss_orthogonality",
        "mean squared entry of S^T P, shared and private features, without its weight diff (asp_mtl)",
        unit="number",
    ),
    _loss("loss_adaptation", "the objective while the embedding alone is trained (fedevocab)"),
    _loss("loss_reconstruction", "the objective while the private rows are reconstructed (fedrecon)"),
    _traffic("bytes_up", "bytes sent by all clients in this round"),
    _traffic("bytes_down", "bytes sent to all clients in this round"),
    _traffic(
        "secure_bytes_up",
        "bytes of the clients' keys, shares and openings in this round, beside bytes_up (server.secure_aggregation)",
    ),
    _traffic(
        "secure_bytes_down",
        "bytes of keys, shares and questions sent to clients in this round, beside bytes_down",
    ),
    _traffic("bytes_per_client", "bytes both ways in this round, per client whose update was aggregated", _PER_CLIENT),
    _traffic("bytes_up_total", "bytes sent by all clients in all rounds until now"),
    _traffic("bytes_down_total", "bytes sent to all clients in all rounds until now"),
    _traffic("bytes_total", "bytes both ways, of all clients, in all rounds until now", _BESIDE),
    _traffic(
        "rounds_to_<metric>_<value>",
        "rounds until the metric first reached the value (evaluation.thresholds)",
        unit="rounds",
        when="once",
    ),
    _traffic(
        "bytes_to_<metric>_<value>",
        "bytes_total when the metric first reached the value (evaluation.thresholds)",
        when="once",
    ),
    _server(
        "adversaries",
        "adversaries among the clients whose update was aggregated",
        "Only with adversaries.",
    ),
    _server(
        "clients_late",
        "clients sampled for the round that did not return in time",
        "Only with participation.pace.",
        better="smaller",
    ),
    _server(
        "staleness_mean",
        "steps that the server has made since the clients of a round's updates began, mean",
        "Only with server.buffer.",
        better="smaller",
    ),
    _server(
        "staleness_max",
        "the largest number of steps since a client of a round's updates began",
        "Only with server.buffer.",
        better="smaller",
    ),
    _server(
        "secure_removed",
        "clients that shared keys in this round and sent no update: masks were removed (server.secure_aggregation)",
    ),
    _server(
        "secure_cut",
        "share of the coordinates of updates that were cut off at server.secure_aggregation.range",
    ),
    _server("clients_trained", "clients whose update was aggregated"),
    _server(
        "clients_failed",
        "clients left out because they failed (participation.on_client_error: skip)",
        "Only if there are any.",
        better="smaller",
    ),
    _server(
        "evaluations_failed",
        "clients left out of the evaluation because it failed (participation.on_client_error: skip)",
        "Only if there are any.",
        better="smaller",
        when="evaluated rounds",
    ),
    _server(
        "round_attempts",
        "attempts at a round that too few clients completed at first (participation.min_clients)",
        "Only if there was more than one.",
        better="smaller",
    ),
    _combined(
        "attention_clients/<tensor>",
        "effective number of clients in a tensor's weighted sum, 1 / sum_k alpha_k^2 (attention, fedatt)",
    ),
    _server("clip_norm", "the norm to which the round's updates were clipped (clip.adaptive)"),
    _server(
        "clip_within",
        "noised share of the updates within the norm, by which the next round's norm is computed (clip.adaptive)",
        unit="fraction",
    ),
    _combined("norm_scaled", "share of updates that were scaled down to the norm (norm_bounded)", unit="fraction"),
    _combined("trimmed", "number of updates left out at each end of a coordinate (trimmed_mean)"),
    _combined("geometric_clients", "effective number of clients in the last Weiszfeld iteration (geometric_median)"),
    _combined(
        "centered_scaled",
        "share of updates that were clipped around the centre, in the last iteration (centered_clipping)",
        unit="fraction",
    ),
    _combined("krum_client", "client, counted from 0, whose update has the smallest score (krum)"),
    _combined(
        "lora_error",
        "distance of the mean product of the clients' factors from the product of the new ones, relative to it (lora)",
    ),
    _combined("krum_kept", "number of updates in the mean (krum)"),
    _combined(
        "energy_kept", "share of the embedding's variance that is sent (project)", unit="fraction", better="larger"
    ),
    _cost("train_seconds", "wall time of a round's training and aggregation"),
    _cost("round_seconds", "wall time of a round with its evaluation"),
    _cost("train_cpu_seconds", "CPU time of all clients' local updates together"),
    _cost(
        "train_gpu_seconds",
        "wall time of the local updates that ran on a GPU",
        "Only if there are any. The times of clients that share a GPU are added.",
    ),
    _cost(
        "simulated_seconds",
        "simulated time of a round: until enough clients have returned, or its deadline",
        "Only with participation.pace. No computation waits for it.",
    ),
    _cost("simulated_seconds_total", "simulated time of all rounds until now", "Only with participation.pace."),
    _cost(
        "simulated_seconds_to_<metric>_<value>",
        "simulated_seconds_total when the metric first reached the value (evaluation.thresholds)",
        "Only with participation.pace.",
        when="once",
    ),
    _cost(
        "updates_begun_total",
        "local updates that clients have begun in all rounds until now, also of those that are late or still train",
        "Only with participation.pace.",
        unit="number",
    ),
    _cost(
        "seconds_lost",
        "wall time of the trial that processes which died or hung have cost until now",
        "Only if there were any: from the round before to the one that was completed again, without its own time.",
    ),
    _cost(
        "restarts",
        "times that the trial has gone back to its last checkpoint until now",
        "Only if there were any.",
        unit="number",
    ),
    _cost("nodes", "nodes of the cluster that host clients", unit="number", better="neither"),
    _sweep("best.<metric>", "the metric of the sweep's best case, in MLflow's parent run"),
    _sweep(
        "seeds.ended",
        "seeds over which the means of a case are taken, in MLflow's run of the case",
        "Its tag seeds.lacking has the metrics that some of these seeds lack.",
    ),
    _sweep("<metric>.std", "standard deviation over seeds, in MLflow's run of the case"),
]
