"""The metrics of attacks and of guarantees."""

from functools import partial

from fedtext.metrics.metric import ATTACKED, LATE, Metric

_leak = partial(Metric, kind="attack", better="smaller", by_parts=True)
_privacy = partial(Metric, kind="privacy", better="smaller")


def _chance(rate: str) -> Metric:
    """Return the chance level of a true positive rate."""
    return _leak(
        f"{rate}_chance",
        f"membership: expected {rate} of an attack that knows nothing",
        "With U test texts, of which k may pass, (k + 1) / (U + 1): 2 % of 100 texts at 1 %, 1.1 % of 1,000. Less if "
        "scores are equal.",
        better="neither",
    )


_TABLES = {
    "true": "vectors decoded by the client's own table",
    "public": "vectors decoded by the table that the attacker has",
    "unrelated": "vectors decoded by a random table, which is chance",
}
_RECOVERY = {
    "precision": "share of the recovered words that are in the text",
    "recall": "share of a text's words that are recovered",
    "f1": "harmonic mean of precision and recall",
    "exact": "share of a text's words that are recovered at their own place",
    "ptlr": "share of the words with a digit that are recovered (privacy token leakage ratio)",
    "ptlr_exact": "share of the words with a digit that are recovered at their own place",
}
_SPANS = {
    "public": "with the vectors that the attacker has",
    "unrelated": "with random vectors, which is chance",
}
_SHOWN = ("inversion_public_recall", "inversion_public_ptlr")

# Each list in the order of a table's columns.
ATTACKS: list[Metric] = [
    *(
        _leak(name, f"gradient_inversion, {how}: {what}", when=ATTACKED, columns="all" if name in _SHOWN else "none")
        for table, how in _TABLES.items()
        for measure, what in _RECOVERY.items()
        if (name := f"inversion_{table}_{measure}")
    ),
    _leak(
        "inversion_distance",
        "gradient_inversion: distance of the update found from the one received",
        "The attacker's objective.",
        unit="number",
        better="neither",
        when=ATTACKED,
    ),
    _leak(
        "inversion_candidates",
        "gradient_inversion: number of words that a vector may be decoded to",
        "gradient_inversion.md says which words these are.",
        unit="number",
        better="neither",
        when=ATTACKED,
    ),
    *(
        _leak(name, f"span_inversion, {how}: {what}", columns="all" if name == "span_public_texts" else "none")
        for table, how in _SPANS.items()
        for measure, what in (
            _RECOVERY | {"texts": "share of the texts with words of which every word is recovered, in order"}
        ).items()
        if (name := f"span_{table}_{measure}")
    ),
    _leak(
        "span_free",
        "span_inversion: share of the directions of the first attention's output that no text has",
        "Near 0, with at least as many tokens as dimensions, no text can be told from another one.",
        better="larger",
    ),
    _leak(
        "span_candidates",
        "span_inversion: number of words that the update of the first layer discloses",
        "At 0 none stands out from the noise.",
        unit="number",
    ),
    _leak("rows_precision", "embedding_rows: share of the words found that the client's train texts have"),
    _leak("rows_recall", "embedding_rows: share of the train texts' words that are found", columns="all"),
    _leak("rows_f1", "embedding_rows: harmonic mean of rows_precision and rows_recall"),
    _leak("rows_ptlr", "embedding_rows: share of the train texts' words with a digit that are found"),
    _leak("label_top", "label_leakage: share of clients whose most frequent class is inferred", columns="all"),
    _leak(
        "label_l1",
        "label_leakage: sum over classes of |inferred share - share|, from 0 to 2",
        unit="number",
        better="larger",
    ),
    _leak("label_l1_uniform", "label_leakage: label_l1 of the guess of equal shares", unit="number", better="neither"),
    _leak(
        "member_auc",
        "membership: area under the ROC curve of train against test texts by the attack's score; 0.5 is chance",
        "The score is the loss, or that of rmia or lira, which attack after the last round.",
        columns="all",
    ),
    _leak(
        "member_advantage",
        "membership: true minus false positive rate at the mean score of half of the train texts",
        "The rates are of the other half, and of the test texts.",
    ),
    _leak(
        "member_tpr_at_1pct_fpr",
        "membership: share of train texts recognised at a threshold that 1 % of the test texts pass",
        "Not computed for clients with fewer than 100 test texts.",
    ),
    _chance("member_tpr_at_1pct_fpr"),
    _leak(
        "attribute_auc",
        "attribute_inference: area under the ROC curve of clients with the attribute against others; 0.5 is chance",
        "Not computed if all clients are alike.",
        columns="all",
    ),
    _leak("attribute_accuracy", "attribute_inference: share of clients of which the attribute is inferred"),
    _leak(
        "attribute_majority",
        "attribute_inference: attribute_accuracy of the better guess of one answer for all clients",
        better="neither",
    ),
    _leak(
        "attribute_shadow_auc",
        "attribute_inference: area under the ROC curve of the attacker's own simulated updates, mean over clients",
    ),
    _leak(
        "attribute_score",
        "attribute_inference: score of a client's update, positive where the attribute is inferred",
        unit="number",
        better="neither",
    ),
    _leak("attribute_present", "attribute_inference: share of clients that have the attribute", better="neither"),
    _leak(
        "attribute_shadows",
        "attribute_inference: number of updates that were simulated for a client",
        "0 if all its test texts have the attribute, or none.",
        unit="number",
        better="neither",
    ),
    _leak(
        "member_pooled_auc",
        "membership: member_auc over the texts of all audited clients together",
        "One threshold for all of them, unlike member_auc, which is the mean of the clients' own.",
    ),
    _leak(
        "member_pooled_tpr_at_1pct_fpr",
        "membership: member_tpr_at_1pct_fpr over the texts of all audited clients together",
        "Not computed with fewer than 100 test texts.",
    ),
    _chance("member_pooled_tpr_at_1pct_fpr"),
    _leak(
        "member_pooled_tpr_at_0.1pct_fpr",
        "membership: the same at a threshold that 0.1 % of the test texts pass",
        "Not computed with fewer than 1,000 test texts.",
    ),
    _chance("member_pooled_tpr_at_0.1pct_fpr"),
    _leak(
        "member_user_auc",
        "membership: area under the ROC curve of users that took part against others, by the mean score of their texts",
        "The others are as many users that have the audited clients' test texts. 0.5 is chance.",
    ),
    _leak(
        "exposure_<insertions>",
        "exposure: bits by which the model singles out a secret's digits; 1.4 on average if it does not know them",
        "Mean over the secrets planted that often (corpus.secrets); control: planted nowhere. With six digits 19.9 "
        "bits at most (Carlini et al. 2019).",
        unit="number",
        when=LATE,
    ),
    _leak(
        "extracted_<insertions>",
        "exposure: share of secrets whose digits are the most probable sentence after their prefix, by beam search",
        when=LATE,
    ),
    _leak("I_ser", "word_relations: share of a word's nearest words that the client's restored update keeps"),
    _leak("I_ag", "word_relations: share of a word's nearest words that the aggregated embedding keeps"),
]
PRIVACY: list[Metric] = [
    _privacy(
        "epsilon",
        "bound on the privacy loss of a client over all rounds until now, at the delta beside it",
        "The guarantee of (epsilon, delta)-differential privacy covers all texts of a client; ledger.json states the "
        "adversary and the assumptions. Not logged if there is no guarantee.",
        unit="epsilon",
        when="every round",
    ),
    _privacy(
        "epsilon_lower",
        "epsilon that the run has at least, by canaries, with confidence privacy.canaries.confidence (default 95 %)",
        "For any mechanism (Steinke et al. 2023); epsilon_lower_confidence has the confidence. The claimed epsilon is "
        "an upper bound of the same number: a lower bound above it shows that the claim is wrong.",
        unit="epsilon",
        when=LATE,
    ),
    _privacy(
        "epsilon_lower_gaussian",
        "epsilon_lower if the trade-off curve is that of Gaussian noise (privacy.canaries)",
        "By Mahloujifar et al. 2024, with the same guesses. Exact for Gaussian noise without sampling.",
        unit="epsilon",
        when=LATE,
    ),
    _privacy(
        "epsilon_lower_confidence",
        "probability with which epsilon_lower holds at least (privacy.canaries.confidence)",
        "epsilon_lower_gaussian has the same.",
        unit="fraction",
        better="neither",
        when=LATE,
    ),
    _privacy(
        "epsilon_estimate",
        "estimate of epsilon by the scores of canaries, without confidence (privacy.canaries)",
        "By Andrew et al. 2023: how far scores of canaries in the run and of others can be told apart.",
        unit="epsilon",
        when=LATE,
    ),
    _privacy(
        "epsilon_text",
        "bound on the privacy loss of a single text over all rounds until now, at training.dp_sgd.delta",
        "Example-level: it covers a text and not all of a client. ledger.json states adversary and assumptions.",
        unit="epsilon",
        when="every round",
    ),
    _privacy(
        "delta",
        "probability with which the bound epsilon may fail",
        "0 for pure differential privacy.",
        unit="delta",
        when="every round",
    ),
]
