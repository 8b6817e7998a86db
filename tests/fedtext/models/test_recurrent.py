"""Which recurrent layers a model has: by its name, or by what a class that derives from it states."""

from typing import Literal

import pytest
from pydantic import ValidationError
from torch import nn

from fedtext.models.language import RecurrentLanguageModel
from fedtext.models.recurrent import RecurrentClassifier


class Nameless(RecurrentClassifier):
    """A name that begins and ends like those of fedtext's models."""

    name: Literal["big_lstm"] = "big_lstm"  # type: ignore[assignment]


class Big(Nameless):
    architecture = "gru"


class NamelessLanguage(RecurrentLanguageModel):
    name: Literal["small_lstm_lm"] = "small_lstm_lm"  # type: ignore[assignment]


class Language(NamelessLanguage):
    architecture = "lstm"


class Backwards(NamelessLanguage):
    architecture = "bilstm"


@pytest.mark.parametrize(
    ("config", "cell", "directions"),
    [
        (RecurrentClassifier(), nn.GRU, 2),
        (RecurrentClassifier(name="gru"), nn.GRU, 1),
        (RecurrentClassifier(name="bilstm"), nn.LSTM, 2),
        (RecurrentClassifier(name="lstm"), nn.LSTM, 1),
        (RecurrentLanguageModel(), nn.GRU, 1),
        (RecurrentLanguageModel(name="lstm_lm"), nn.LSTM, 1),
        (Big(), nn.GRU, 1),
        (Language(), nn.LSTM, 1),
    ],
)
def test_layers_are_those_of_the_name_or_of_what_a_class_states(
    config: RecurrentClassifier | RecurrentLanguageModel, cell: type[nn.Module], directions: int
) -> None:
    assert (config.cell, config.directions) == (cell, directions)
    small = config.model_copy(update={"hidden": 3})
    rnn = (
        small.build_encoder(weights=True).rnn
        if isinstance(small, RecurrentClassifier)
        else small.build(5, nn.Embedding(5, small.embedding.dim), weights=True).rnn
    )
    assert (type(rnn), rnn.bidirectional) == (cell, directions == 2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Nameless, "'big_lstm' does not say which recurrent layers the model has: set architecture in Nameless to one"),
        (NamelessLanguage, "'small_lstm_lm' does not say which recurrent layers the model has"),
        (Backwards, "architecture: a language model reads words in one direction: set it to gru or lstm"),
    ],
)
def test_a_name_that_does_not_say_is_refused(config: type[RecurrentClassifier], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config()
