"""Predictions of a trained model about a text."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prediction:
    """A classifier's prediction of a text.

    Attributes:
        label: The name of the most probable class.
        probability: Its probability.
        probabilities: The probability of every class, by name.
    """

    label: str
    probability: float
    probabilities: dict[str, float] = field(repr=False)


@dataclass(frozen=True)
class NextWords:
    """A language model's prediction of a text.

    Attributes:
        words: The most probable next words, each with its probability.
        perplexity: exp of the mean negative log-likelihood of the text's tokens, including the </s> of each sentence.
    """

    words: tuple[tuple[str, float], ...]
    perplexity: float
