"""Equivalent mutants of ``fedtext/evaluation/``."""

_READ = "how many texts are read at a time: each is read by itself"

EQUIVALENTS = (
    *(("evaluation/classes", "BATCH = 256", f"BATCH = {size}", _READ) for size in (255, 257)),
    (
        "evaluation/classes",
        "scores_N = np.zeros(len(texts), np.float32)",
        "scores_N = np.ones(len(texts), np.float32)",
        "every text is in one batch, and its score is written over what was there",
    ),
    *(
        ("evaluation/unigram", before, after, "counts + alpha = alpha + counts")
        for before, after in (
            ("nats_V = _nats(counts_V, alpha)", "nats_V = _nats(alpha, counts_V)"),
            ("found = _evaluate(counts_V, alpha, splits)", "found = _evaluate(alpha, counts_V, splits)"),
            (
                'return _evaluate(counts_V, alpha, splits)["perplexity"]',
                'return _evaluate(alpha, counts_V, splits)["perplexity"]',
            ),
        )
    ),
    (
        "evaluation/unigram",
        "alpha = min(ALPHAS, key=lambda each: _perplexity(counts_V, each, held_out)) if held_out else UNCHOSEN",
        "alpha = min(ALPHAS, key=lambda each: _perplexity(each, counts_V, held_out)) if held_out else UNCHOSEN",
        "counts + alpha = alpha + counts",
    ),
    *(("evaluation/words", "BATCH = 64", f"BATCH = {size}", _READ) for size in (63, 65)),
)
