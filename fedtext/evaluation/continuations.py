"""Texts that a language model continues: to look at, not to measure by.

Legend: T tokens of a beginning, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedtext.corpora.base import CorpusConfig
from fedtext.corpora.encoding import cleaned, rows_of
from fedtext.errors import UserError
from fedtext.methods.base import Model
from fedtext.models.language import LanguageModel
from fedtext.runtime.markdown import plain
from fedtext.runtime.threads import one_torch_thread
from fedtext.schema import Strict
from fedtext.seeding import generator
from fedtext.text import byte_pairs
from fedtext.text.tokens import BOS, BOS_ID, EOS, EOS_ID, UNK_ID
from fedtext.text.vocabulary import WordIndex

FILE = "continuations.md"


class Generate(Strict):
    """Texts that the final model of a language model continues, written to continuations.md."""

    prompts: tuple[str, ...] = Field(min_length=1, description="beginnings of texts; an empty one: a whole sentence")
    tokens: int = Field(20, ge=1, le=1000, description="most tokens of a continuation, which ends with the sentence")
    temperature: float = Field(
        0.0,
        ge=0,
        le=10,
        description="0: always the most probable token; else tokens are drawn from the probabilities to the power of "
        "1 / temperature, normalised: 1 as the model has them",
    )
    samples: int = Field(1, ge=1, le=100, description="continuations of each beginning; with temperature 0 all are one")


@dataclass(frozen=True)
class Writing:
    """The words of a language model, by which texts are rows and rows are texts.

    Attributes:
        corpus: The corpus that it was trained on.
        vocabulary: Its V entries, <pad> first.
        tokenizer: Its tokenizer of byte pairs; empty if tokens are words.
    """

    corpus: CorpusConfig
    vocabulary: list[str]
    tokenizer: str = ""

    def sentences(self, text: str, tokenized: bool = False) -> list[list[int]]:
        """Return the sentences of a text, each as <s> and its tokens, entries of the vocabulary.

        Args:
            text: The text.
            tokenized: Whether it is in the form of the corpus's files, and not raw.

        Returns:
            At least one sentence, the last of which goes on: it has no token if the text ends with a sentence.
        """
        whole, index = self.corpus.model_copy(update={"max_length": None}), WordIndex(self.vocabulary)
        made = self.corpus.sentences_of(text, lambda line: cleaned(self.corpus, line, index, tokenized))
        given = [" ".join((BOS, *words, EOS)) for words in made]
        tokens_T, offsets = rows_of(given, whole, index, self.tokenizer)
        return [tokens_T[start : stop - 1].tolist() for start, stop in pairwise(offsets)]

    def rows(self, text: str, tokenized: bool = False) -> list[int]:
        """Return <s> and the tokens of the last sentence of a text, which goes on; see ``sentences``."""
        return self.sentences(text, tokenized)[-1]

    def text(self, rows: Sequence[int]) -> str:
        """Return the text of entries of the vocabulary."""
        if not self.tokenizer:
            return "".join(f" {self.vocabulary[row]}" for row in rows)
        return byte_pairs.decode(self.tokenizer, rows, framed=True)

    def check(self, rows: Sequence[int], reach: int | None, where: str = "") -> None:
        """Check that a model can read <s> and the tokens of a text.

        Args:
            rows: <s> and the tokens.
            reach: Largest number of tokens that the model can read; None: any number.
            where: The key or argument that has the text.

        Raises:
            UserError: They are too many.
        """
        if reach is not None and len(rows) > reach:
            raise UserError(
                f"{where}a text has {len(rows) - 1} tokens, and the model has {reach} positions, one of them for the "
                "beginning of a text: shorten it"
            )

    def continued(
        self, model: Model, prompt: str, asked: Generate, rng: np.random.Generator, tokenized: bool = False
    ) -> str:
        """Return what a model adds to the beginning of a text.

        It ends before </s>, where the model can read no more, or after ``asked.tokens`` tokens.

        Args:
            model: The model, whose table has no row of <pad>.
            prompt: The beginning.
            asked: How it is continued.
            rng: Source of the draws.
            tokenized: As in ``sentences``.

        Raises:
            UserError: The beginning is too long for the model.
        """
        begun, rows = self.rows(prompt, tokenized), list[int]()

        def extend(network: LanguageModel) -> None:
            self.check(begun, network.reach)
            state, logits_1V = None, torch.empty(0)
            for row in begun:
                logits_1V, state = network.step(torch.tensor([row - 1]), state)
            while len(rows) < asked.tokens:
                row = 1 + _chosen(logits_1V[0], asked.temperature, rng)
                if row == EOS_ID:
                    return
                rows.append(row)
                if len(begun) + len(rows) > (network.reach or np.inf):
                    return
                logits_1V, state = network.step(torch.tensor([row - 1]), state)

        with one_torch_thread(), torch.no_grad():
            model.run(extend)
        return self.text([*begun[1:], *rows])[len(self.text(begun[1:])) :]

    def page(self, model: Model, asked: Generate, seed: int) -> str:
        """Return the continuations of all beginnings as Markdown.

        Args:
            model: The model.
            asked: The beginnings, and how they are continued.
            seed: Seed of the draws.
        """
        how = "the most probable token at each place" if not asked.temperature else f"temperature {asked.temperature:g}"
        lines = ["# Continuations", "", f"By the final model: {how}, at most {asked.tokens} tokens.", ""]
        for number, prompt in enumerate(asked.prompts):
            for sample in range(asked.samples if asked.temperature else 1):
                rng = generator(seed, f"continuations/{number}", sample)
                lines += [f"- {plain(prompt)} **|** {plain(self.continued(model, prompt, asked, rng).strip())}"]
        return "\n".join(lines) + "\n"


def _chosen(logits_V: Tensor, temperature: float, rng: np.random.Generator) -> int:
    """Return the next token as a row of the table, never that of <unk> or <s>."""
    scores_V = logits_V.double().clone()
    scores_V[[UNK_ID - 1, BOS_ID - 1]] = -torch.inf
    if not temperature:
        return int(scores_V.argmax())
    shares_V = ((scores_V - scores_V.max()) / temperature).softmax(0).cumsum(0).numpy()  # no quotient is infinite
    return min(int(np.searchsorted(shares_V, rng.random() * shares_V[-1], side="right")), len(shares_V) - 1)
