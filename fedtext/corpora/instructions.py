"""Pairs of a prompt and a response, from a table: supervised fine-tuning of language models."""

from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from fedtext.corpora.language import TokenCorpus
from fedtext.corpora.shares import deal
from fedtext.corpora.table_keys import TEST, TableKeys
from fedtext.corpora.table_rows import Rows
from fedtext.corpora.table_values import numbered
from fedtext.corpora.types import RawCorpus, Split
from fedtext.errors import UserError
from fedtext.seeding import SERVER
from fedtext.text.tokens import BOS, EOS, sentence_words


class InstructionCorpus(TableKeys, TokenCorpus):
    """Prompts and responses of your own, for language models that learn to answer (supervised fine-tuning).

    ``{name: instructions, path: pairs.jsonl, prompt: question, response: answer, client: user}`` reads the columns
    question, answer and user of a file, in the formats of the corpus ``table``. A text is the prompt, a blank, and the
    response. The model reads the prompt, and is trained and evaluated on the tokens of the response and its end alone:
    loss, perplexity and bits per byte are of these. Blanks and line ends become single blanks; letters keep their case.

    With ``client`` each value of the column is a client. Without it the pairs are split over ``clients`` in equal
    shares.
    """

    name: Literal["instructions"] = "instructions"
    prompt: str = Field("prompt", description="column of the prompts")
    response: str = Field("response", description="column of the responses")
    clients: int = Field(10, ge=1, description="number of clients the pairs are split over; only without client")
    max_length: int | None = Field(
        512, ge=3, description="tokens kept of each pair, with <s> and </s>; a pair that is cut has no </s>; null: all"
    )
    validation: float = Field(
        0.0,
        ge=0.0,
        le=1.0,
        description="share of each client's train pairs held out for selection; if the column of the splits has "
        "validation rows, the share of these that is used instead",
    )

    @model_validator(mode="after")
    def _takes_effect(self) -> "InstructionCorpus":
        key = "clients" if self.client is not None else "min_texts"
        if getattr(self, key) != type(self).model_fields[key].default:
            said = "the column client assigns pairs to clients" if self.client else "client names no column"
            raise ValueError(f"{key}: {said}: leave {key} out")
        if self.prompt == self.response:
            raise ValueError(f"response: prompt and response are the column {self.prompt!r}: name two")
        return self

    @property
    def columns(self) -> dict[str, str]:
        return {"prompt": self.prompt, "response": self.response}

    @property
    def unlabeled(self) -> Literal["none", "local", "remote"]:
        return "none"

    def read(self, data: Path | None, seed: int) -> RawCorpus:
        from pyarrow import compute

        table = self.table(data)
        if "split" in table.column_names:
            table = table.filter(compute.not_equal(table["split"], "unlabeled"))
        prompts, responses = ([*map(sentence_words, table[key].to_pylist())] for key in ("prompt", "response"))
        texts = [" ".join((BOS, *prompt, *response, EOS)) for prompt, response in zip(prompts, responses, strict=True)]
        splits_N = np.array(table["split"].to_pylist(), object) if "split" in table.column_names else None
        clients, clients_N = numbered(table["client"]) if "client" in table.column_names else ((), None)
        test = TEST if isinstance(self.split, str) else self.split
        whole = Split(texts, np.array([len(words) for words in prompts], np.int64))
        rows = Rows(whole, (), splits_N, clients, clients_N, test, self.validation)
        if clients_N is not None:
            return RawCorpus(self.name, 0, self.by_client(rows, clients_N, seed), unused=rows.unused)
        splits = rows.splits(np.arange(len(whole)), seed, SERVER)
        for side, split in splits.items():
            if not len(split):
                raise UserError(f"corpus.split: {self.what} has no {side} pair: {rows.advice}")
        return RawCorpus(self.name, 0, deal(clients=self.clients, seed=seed, **splits), unused=rows.unused)
