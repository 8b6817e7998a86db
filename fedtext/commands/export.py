"""``fedtext export MODEL FOLDER``: write a causal language model in the format of the package transformers."""

from collections.abc import Sequence

from fedtext.commands.parser import Parser, command_parser

DESCRIPTION = """\
Write a causal language model and its tokenizer in the format of the package transformers, with adapters merged into the
weights.
"""


def parser() -> Parser:
    """Return the parser of the command."""
    examples = [
        ("runs/first/00-fedavg/model gpt", "by the model of a trial"),
        ("OUT/model gpt --client dvd", "the personal model of a client"),
    ]
    made = command_parser("export", DESCRIPTION, examples)
    made.add_argument("model", metavar="MODEL", help="a model folder: runs/NAME/TRIAL/model, or OUT/model; or its URI")
    made.add_argument("folder", metavar="FOLDER", help="the new folder; a model that was exported before is replaced")
    made.add_argument("--client", metavar="NAME", help="the client whose personal model is exported")
    made.add_argument(
        "--trust-plugins", action="store_true", help="run the plug-ins that are stored with the model; read them first"
    )
    return made


def main(words: Sequence[str] | None) -> int:
    """Run the command, and return its exit status.

    Raises:
        UserError: There is no such model or client, it cannot be exported, or the folder cannot be written.
    """
    arguments = parser().parse_args(words)
    from fedtext.api.model import Model

    Model.load(arguments.model, arguments.trust_plugins).export(arguments.folder, arguments.client)
    print(f"{arguments.folder}: AutoModelForCausalLM.from_pretrained and AutoTokenizer.from_pretrained read it")
    return 0
