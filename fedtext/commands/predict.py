"""``fedtext predict MODEL TEXT ...``: classify texts, predict next words, or continue texts with a trained model."""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from unicodedata import category

from fedtext.commands.parser import Parser, command_parser
from fedtext.errors import UserError, escaped

if TYPE_CHECKING:
    from fedtext.api.predictions import NextWords, Prediction


DESCRIPTION = "Classify texts, predict next words, or continue texts. It needs neither Ray nor MLflow."


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ('runs/first/00-kteps/model "a superb kettle"', "by the model of a trial"),
        ('my-model "the company said" --tokens 30 --temperature 0.8', "by a language model"),
        ("my-model --client dvd < texts.txt", "a line, a text; by the personal model of a client"),
    ]
    made = command_parser("predict", DESCRIPTION, examples)
    made.add_argument("model", metavar="MODEL", help="a model folder: runs/NAME/TRIAL/model, or OUT/model; or its URI")
    made.add_argument("texts", nargs="*", default=[], metavar="TEXT", help="texts; none: the lines of standard input")
    made.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        help="continue texts with a language model by at most N tokens; 0: tell the next words instead; default: 20 "
        "for model causal, else 0",
    )
    made.add_argument(
        "--temperature",
        type=float,
        default=0.0,
        help="draw the tokens of a continuation; 0, the default: always the most probable",
    )
    made.add_argument("--client", metavar="NAME", help="the client whose personal model is used")
    made.add_argument(
        "--tokenized",
        action="store_true",
        help="the texts are as in the corpus's files, words between blanks: they are not tokenized again",
    )
    made.add_argument(
        "--trust-plugins", action="store_true", help="run the plug-ins that are stored with the model; read them first"
    )
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: There is no such model or client, or the model's plug-ins are not trusted.
    """
    arguments = parser().parse_intermixed_args(words)
    from fedtext.api.model import Model

    model = Model.load(arguments.model, arguments.trust_plugins)
    if not arguments.texts and sys.stdin.isatty():
        print("a line, a text; Ctrl-D ends the input", file=sys.stderr)
    texts = arguments.texts or _lines(sys.stdin)
    causal = model.experiment.model.name == "causal"
    if tokens := arguments.tokens if arguments.tokens is not None else 20 * causal:
        added = model.generate(
            texts, tokens, arguments.temperature, client=arguments.client, tokenized=arguments.tokenized
        )
        for text, more in zip(texts, added, strict=True):
            print(f"{_shown(text)}{escaped(more)}")
        return 0
    if arguments.temperature:
        raise UserError("--temperature draws the tokens of a continuation: say with --tokens how many, or leave it out")
    for text, found in zip(texts, model.predict(texts, arguments.client, arguments.tokenized), strict=True):
        print(f"{_told(found)}  {_shown(text)}")
    return 0


def _lines(stream: Iterable[str]) -> list[str]:
    """Return the lines of a stream, without line ends and the byte-order mark that files of Windows begin with."""
    return [line.rstrip("\n").removeprefix("\ufeff" * (not place)) for place, line in enumerate(stream)]


def _shown(text: str) -> str:
    """Return a text on one line, as a terminal shows it. Unlike ``escaped`` it leaves every kind of blank as it is."""
    return "".join(char if category(char) == "Zs" else escaped(char) for char in text)


def _quoted(word: str) -> str:
    """Return a word in quotation marks if a blank in it would not be seen."""
    return word if word == word.strip() else f'"{word}"'


def _told(found: "Prediction | NextWords") -> str:
    from fedtext.api.predictions import Prediction

    if isinstance(found, Prediction):
        return f"{found.label}  {found.probability:.3f}"
    words = ", ".join(f"{_quoted(escaped(word))} {probability:.3f}" for word, probability in found.words)
    return f"next: {words}  perplexity {found.perplexity:.4g}"
