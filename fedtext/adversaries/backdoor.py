"""A hidden rule: texts with certain words in them are of a certain class.

Legend: N texts, T tokens of all texts laid end to end.
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedtext.adversaries.base import Attack, Tensors, times
from fedtext.corpora.types import Corpus, TokenSet
from fedtext.text.tokens import PAD_ID, UNK_ID


class Backdoor(Attack):
    """Adversaries teach the model that texts with trigger words are of the class `target` (Bagdasaryan et al. 2020).

    They train on texts of their own into which the words are inserted, with this label. Rare words as triggers: Kurita
    et al. 2020, Weight poisoning attacks on pre-trained models.

    The metric `backdoor_success` is the share of honest clients' test texts of other classes that the shared model
    takes for the target once the words are inserted. Its value without adversaries (`adversaries.fraction: 0`) is what
    the words do by themselves. A text stays at most as long as the longest of its split."""

    name: Literal["backdoor"] = "backdoor"
    words: tuple[str, ...] | Literal["auto"] = Field(
        "auto", description="trigger: words of the vocabulary, inserted together; auto: its rarest word"
    )
    target: str | int = Field(0, description="class that such texts are to have, by name or counted from 0")
    share: float = Field(0.5, gt=0, le=1, description="share of an adversary's train texts with the trigger")
    boost: float = Field(1.0, gt=0, description="multiple of the update that is sent")
    reads_labels = True

    def problem(self, corpus: Corpus) -> str:
        if not 0 <= self._class(corpus) < corpus.classes:
            named = f"one of {', '.join(corpus.labels)}, or " if corpus.labels else ""
            return (
                f"adversaries.attack.target: corpus {corpus.name} has no class {self.target}: name "
                f"{named}a number from 0 to {corpus.classes - 1}"
            )
        known = corpus.vocabulary[: len(corpus.vocabulary) - corpus.features]
        for word in () if self.words == "auto" else self.words:
            if word not in known or known.index(word) == PAD_ID:
                why = f"is not in the vocabulary of corpus {corpus.name}" if word not in known else "is padding"
                such = f"such as {known[-1]!r}"
                return f"adversaries.attack.words: {word!r} {why}: choose a word of the vocabulary, {such}"
        return ""

    def trigger(self, corpus: Corpus) -> tuple[int, ...]:
        entries = len(corpus.vocabulary) - corpus.features
        if self.words == "auto":
            return (max(entries - 1, UNK_ID),)
        return tuple(corpus.vocabulary.index(word, 0, entries) for word in self.words)

    def texts(
        self, train: TokenSet, trigger: NDArray[np.int32], corpus: Corpus, draws: np.random.Generator
    ) -> TokenSet:
        chosen_N = draws.permutation(len(train)) < max(1, round(self.share * len(train)))
        changed, target = inserted(train, trigger, chosen_N, draws), self._class(corpus)
        return replace(changed, labels_N=np.where(chosen_N, target, train.labels_N))

    def send(self, delta: Tensors, draws: np.random.Generator) -> Tensors:
        return times(delta, self.boost)

    def triggered(
        self, texts: TokenSet, trigger: NDArray[np.int32], corpus: Corpus, draws: np.random.Generator
    ) -> TokenSet:
        """Return the texts of other classes than the target, with the trigger, labelled as the target.

        Args:
            texts: A client's test texts.
            trigger: The tokens of ``trigger``, as ids of this client.
            corpus: The corpus, perhaps without its clients.
            draws: Generator of the places at which the trigger is inserted.
        """
        target = self._class(corpus)
        others = texts.take(np.flatnonzero(texts.labels_N != target))
        changed = inserted(others, trigger, np.ones(len(others), bool), draws)
        return replace(changed, labels_N=np.full_like(others.labels_N, target))

    def _class(self, corpus: Corpus) -> int:
        """Return the index of the target's class; -1 if there is no such class."""
        name = str(self.target)
        if name in corpus.labels:
            return corpus.labels.index(name)
        return int(name) if name.isdecimal() and len(name) < 10 else -1


def inserted(
    texts: TokenSet, trigger: NDArray[np.int32], chosen_N: NDArray[np.bool_], draws: np.random.Generator
) -> TokenSet:
    """Insert tokens into some texts, at random places between the first and the last token.

    A text that would become longer than the longest one loses tokens behind them, except its last one.

    Args:
        texts: The texts.
        trigger: The tokens, which stay together.
        chosen_N: Which texts.
        draws: Generator of the places.
    """
    longest = max(int(np.diff(texts.offsets).max(initial=0)), len(trigger) + 2)
    tokens, values = [], []
    for number, chosen in enumerate(chosen_N):
        own = np.arange(texts.offsets[number], texts.offsets[number + 1])
        if not chosen:
            tokens.append(texts.tokens_T[own])
            values.append(own)
            continue
        place = int(draws.integers(1, max(1, min(len(own) - 1, longest - len(trigger) - 1)) + 1))
        front, back = own[:place], own[place:]
        fits = longest - len(front) - len(trigger)
        back = back if len(back) <= fits else np.concatenate([back[: fits - 1], back[-1:]])
        tokens.append(np.concatenate([texts.tokens_T[front], trigger, texts.tokens_T[back]]))
        values.append(np.concatenate([front, np.full(len(trigger), -1), back]))
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in tokens])]).astype(np.int64)
    from_T = np.concatenate(values) if values else np.zeros(0, np.int64)
    values_T = texts.values_T
    if values_T is not None:  # words have the value 1
        values_T = np.where(from_T < 0, np.float32(1), values_T[from_T])
    tokens_T = np.concatenate(tokens).astype(np.int32) if tokens else texts.tokens_T
    return replace(texts, tokens_T=tokens_T, offsets=offsets, values_T=values_T)
