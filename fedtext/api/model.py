"""A trained model, which classifies new texts or predicts next words."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from fedtext.api import export
from fedtext.api.binding import Bound, bind, named_clients
from fedtext.api.predictions import NextWords, Prediction
from fedtext.client.texts import texts_of
from fedtext.corpora.encoding import cleaned, rows_of
from fedtext.corpora.rows import within
from fedtext.corpora.types import ClientData, TokenSet
from fedtext.errors import UserError
from fedtext.evaluation.classes import BATCH
from fedtext.evaluation.continuations import Generate, Writing
from fedtext.models.causal import CausalNetwork
from fedtext.models.language import LanguageModel
from fedtext.parameters import table_rows
from fedtext.runtime.folders import folder_of, origins_named, present, written_to
from fedtext.runtime.threads import one_torch_thread
from fedtext.seeding import generator
from fedtext.state import model_folder
from fedtext.state.trained import Trained
from fedtext.text.tokens import BOS, EOS, UNK_ID
from fedtext.text.vocabulary import WordIndex
from fedtext.training.batches import Assembler, Texts

NEXT = 3  # words that are predicted


class Model:
    """A trained model, from ``fedtext.run(...).model`` or ``Model.load(FOLDER)``."""

    def __init__(self, trained: Trained) -> None:
        self.trained, self.experiment = trained, trained.experiment
        self._bound: dict[str | None, Bound] = {}

    def __repr__(self) -> str:
        of = self.experiment
        return f"Model({of.name}, method={of.method.name}, model={of.model.name})"

    @classmethod
    def load(cls, folder: str | Path, trust_plugins: bool = False) -> "Model":
        """Read a model folder.

        Args:
            folder: A folder that a run, or ``save``, has written, or its URI (``s3://bucket/runs/NAME/TRIAL/model``).
            trust_plugins: Whether the plug-ins that are stored with the model may run. They are programs: read them
                first. Those that this process has already loaded run in any case.

        Raises:
            UserError: It is not a model folder, is damaged, or has plug-ins that are not trusted.
        """
        where = folder_of(folder, "the model")
        if present(where / model_folder.ABOUT):
            present(where)
        else:  # of a run, with all its checkpoints, nothing else is fetched
            present(where / model_folder.FOLDER / model_folder.ABOUT)
        with origins_named():
            _check_folder(where)
            return cls(model_folder.read(where, trust_plugins))

    def save(self, folder: str | Path) -> None:
        """Write a model folder.

        Raises:
            UserError: It cannot be written.
        """
        model_folder.write(self.trained, written_to(folder))

    def export(self, folder: str | Path, client: str | None = None) -> None:
        """Write a causal language model in the format of the package transformers, with its tokenizer.

        ``AutoModelForCausalLM.from_pretrained(folder)`` and ``AutoTokenizer.from_pretrained(folder)`` read it. Adapters
        are merged into the weights.

        Args:
            folder: The folder. An exported model that is there is replaced.
            client: Name of the client whose personal model is exported; None: the shared model.

        Raises:
            UserError: It is another model, the folder has something else, or it cannot be written.
        """
        export.check(self.experiment)
        place = written_to(folder)
        bound = self._bind(client)
        network = bound.model.network
        assert isinstance(network, CausalNetwork)
        rows = table_rows(self.experiment, len(bound.vocabulary), 0)
        entries = [bound.vocabulary[row] for row in rows]
        export.write(network, self.experiment, entries, self.trained.tokenizer, place)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes by index; empty for a language model."""
        if self.experiment.language:
            return ()
        return self.trained.labels or tuple(map(str, range(self.trained.classes)))

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the clients whose personal models are available."""
        return named_clients(self.trained)

    def predict(
        self, texts: Sequence[str], client: str | None = None, tokenized: bool = False
    ) -> Sequence[Prediction | NextWords]:
        """Classify texts, or predict their next words.

        Args:
            texts: Raw texts. They are tokenized as those of the corpus were; what is one of its words stays one.
            client: Name of the client whose personal model is used; None: the shared model.
            tokenized: Whether the texts are as in the corpus's files: for a corpus whose files have words between
                blanks, such as PTB or FDU-MTL, they are not tokenized again.

        Returns:
            A ``Prediction`` for each text, or ``NextWords`` if it is a language model.

        Raises:
            UserError: The model needs a client, or does not have this client's part; or it is given something else than
                texts.
        """
        texts = checked(texts)
        if not texts:
            return []
        bound = self._bind(client)
        with one_torch_thread(), torch.no_grad():
            if isinstance(bound.model.network, LanguageModel):
                return [self._continued(bound, text, tokenized) for text in texts]
            return self._classified(bound, texts, tokenized)

    def _classified(self, bound: Bound, texts: Sequence[str], tokenized: bool) -> list[Prediction]:
        read, method, labels = self._read(bound, texts, tokenized), self.experiment.method, self.labels
        found: list[Prediction | None] = [None] * len(texts)
        assembler = Assembler(None, False, torch.device("cpu"))
        for chosen_B in read.by_length(BATCH):
            batch, _ = assembler.single(read, chosen_B)
            probabilities_BC = method.probabilities(bound.model, batch, bound.inference)
            for place, row_C in zip(chosen_B.tolist(), probabilities_BC.double().tolist(), strict=True):
                named = dict(zip(labels, row_C, strict=True))
                best = max(named, key=named.__getitem__)
                found[place] = Prediction(best, named[best], named)
        return [each for each in found if each]

    def generate(
        self,
        texts: Sequence[str],
        tokens: int = 20,
        temperature: float = 0.0,
        seed: int = 0,
        client: str | None = None,
        tokenized: bool = False,
    ) -> list[str]:
        """Continue texts with a language model.

        Args:
            texts: Beginnings of texts.
            tokens: Most tokens of a continuation, which ends with the sentence.
            temperature: 0: the most probable token at each place; else tokens are drawn (``evaluation.generate``).
            seed: Seed of the draws.
            client: Name of the client whose personal model is used; None: the shared model.
            tokenized: As in ``predict``.

        Returns:
            What is added to each text.

        Raises:
            UserError: It is a classifier, a text is too long, or as in ``predict``.
        """
        prompts = checked(texts)
        if not self.experiment.language:
            raise UserError(f"model {self.experiment.model.name} is a classifier and continues no text: use predict")
        try:
            asked = Generate(prompts=("",), tokens=tokens, temperature=temperature)
        except ValidationError:
            raise UserError("texts are continued by 1 to 1000 tokens, with a temperature from 0 to 10") from None
        bound = self._bind(client)
        writing = self._writing(bound)
        draws = (generator(seed, f"continuations/{number}") for number in range(len(prompts)))
        given = zip(prompts, draws, strict=True)
        return [writing.continued(bound.model, text, asked, rng, tokenized) for text, rng in given]

    def _writing(self, bound: Bound) -> Writing:
        return Writing(self.experiment.corpus, bound.vocabulary, self.trained.tokenizer)

    def _continued(self, bound: Bound, text: str, tokenized: bool) -> NextWords:
        index, network = WordIndex(bound.vocabulary), bound.model.network
        assert isinstance(network, LanguageModel)
        writing = self._writing(bound)
        sentences = writing.sentences(text, tokenized)
        first = table_rows(self.experiment, len(bound.vocabulary), 0).start
        log_TV, nats, tokens = torch.empty(0), 0.0, 0
        for rows in sentences:  # <s> and its tokens; the last one goes on
            writing.check(rows, network.reach, f"{text[:40]!r}: ")
            log_TV = network.following((torch.tensor(rows) - first)[None])[0].double().log_softmax(1)
            if len(rows) > 1 or len(sentences) == 1:
                targets_T = torch.tensor([*rows[1:], index[EOS]]) - first
                nats -= float(log_TV[torch.arange(len(targets_T)), targets_T].sum())
                tokens += len(targets_T)
        last_V = log_TV[-1].exp()
        last_V[[index[BOS] - first, UNK_ID - first]] = 0  # neither is a word
        best = last_V.topk(min(NEXT, len(last_V)))
        named = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        end = index[EOS] - first
        found = tuple((EOS if row == end else self._word(writing.text([row + first])), share) for row, share in named)
        return NextWords(found, math.exp(min(nats / tokens, 700.0)))

    def _word(self, text: str) -> str:
        """Return a next word: of byte pairs with its blank, which tells whether a new word begins."""
        return text if self.trained.tokenizer else text.removeprefix(" ") or " "

    def _read(self, bound: Bound, texts: Sequence[str], tokenized: bool) -> Texts:
        """Encode texts for the network."""
        corpus, vocabulary, index = self.experiment.corpus, bound.vocabulary, WordIndex(bound.vocabulary)
        made = [cleaned(corpus, text, index, tokenized) for text in texts]
        tokens_T, offsets = rows_of(made, corpus, index, self.trained.tokenizer)
        nothing = TokenSet(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int64))
        given = TokenSet(tokens_T, offsets, np.zeros(len(texts), np.int64))
        rows_R = np.arange(len(vocabulary), dtype=np.int32)
        data = ClientData(bound.task, "texts", rows_R, len(rows_R), nothing, nothing, given)
        return texts_of(self.experiment, within(data, table_rows(self.experiment, len(rows_R), 0), 0), "test")

    def _bind(self, client: str | None) -> Bound:
        if client not in self._bound:
            self._bound[client] = bind(self.trained, client)
        return self._bound[client]


def _check_folder(folder: Path) -> None:
    """Raise UserError if it is the folder of a run in which the model is, for example OUT rather than OUT/model."""
    inner = folder / model_folder.FOLDER
    if not (folder / model_folder.ABOUT).is_file() and (inner / model_folder.ABOUT).is_file():
        raise UserError(f"{folder} has no {model_folder.ABOUT}, and {inner} has one: give {inner}")


def checked(texts: Any) -> list[str]:
    """Return texts as a list. Raises UserError if they are something else."""
    if isinstance(texts, str):
        raise UserError("predict needs a list of texts, not a single text: write predict([text])")
    if not isinstance(texts, Iterable):
        raise UserError(f"predict needs a list of texts, not {texts!r}")
    found = list(texts)
    for place, text in enumerate(found):
        if not isinstance(text, str):
            raise UserError(f"predict needs texts: number {place} of the list is {text!r}, which is none")
        if any("\ud800" <= letter <= "\udfff" for letter in text):  # of bytes that are no UTF-8, as in os.fsdecode
            raise UserError(f"predict needs texts: number {place} of the list is no UTF-8: convert it")
    return found
