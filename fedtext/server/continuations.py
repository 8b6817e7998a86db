"""The continuations of texts by the final model of a run."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedtext.config.experiment import Experiment
from fedtext.corpora.types import Corpus
from fedtext.evaluation.continuations import FILE, Writing
from fedtext.methods.base import Model
from fedtext.models.language import LanguageConfig
from fedtext.parameters import build_network


@dataclass(frozen=True)
class Continuations:
    """The texts that ``evaluation.generate`` asks for. The server has the vocabulary, and no client's texts.

    Attributes:
        experiment: The experiment.
        writing: The words of the model.
        clients: Number of the corpus's clients.
    """

    experiment: Experiment
    writing: Writing
    clients: int

    @classmethod
    def of(cls, experiment: Experiment, corpus: Corpus, clients: int | None) -> "Continuations | None":
        """Return those of an experiment; None if it asks for none.

        Args:
            experiment: The experiment.
            corpus: The corpus.
            clients: Number of its clients; None: that of its list.

        Raises:
            UserError: A beginning is too long for the model.
        """
        if not (asked := experiment.evaluation.generate):
            return None
        writing = Writing(experiment.corpus, corpus.vocabulary, corpus.tokenizer)
        if isinstance(experiment.model, LanguageConfig):  # now, and not after the last round
            for prompt in asked.prompts:
                writing.check(writing.rows(prompt), experiment.model.reach, "evaluation.generate.prompts: ")
        return cls(experiment, writing, len(corpus.clients) if clients is None else clients)

    def files(self, state: Mapping[str, NDArray[np.float32]]) -> dict[str, str]:
        """Return the continuations as a text by file name.

        Args:
            state: The shared parameters.
        """
        asked = self.experiment.evaluation.generate
        assert asked is not None
        words, tokenizer = len(self.writing.vocabulary) - 1, self.writing.tokenizer
        network = build_network(self.experiment, words, self.clients, tokenizer=tokenizer).eval()
        model = Model(network, {name: torch.from_numpy(np.array(tensor)) for name, tensor in state.items()})
        return {FILE: self.writing.page(model, asked, self.experiment.seed)}
