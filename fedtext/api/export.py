"""Causal language models in the format of the package transformers, which then needs nothing of fedtext.

The network is ``GPT2LMHeadModel`` or ``LlamaForCausalLM`` (or that of Mistral or Qwen) with adapters merged into its
weights. Its tokens are the rows of the word table:
<unk>, <s>, </s>, and the words or byte pairs. The tokenizer puts <s> before a text, as in training.

Legend: V vocabulary, D embedding.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedtext.config.experiment import Experiment
from fedtext.errors import UserError, writing
from fedtext.models.adapted import Joined, LoRALinear
from fedtext.models.causal import CausalLanguageModel, CausalNetwork
from fedtext.models.checkpointed import settings
from fedtext.runtime.tensor_files import os_errors
from fedtext.state.draft import check_others, replacement
from fedtext.text import pretrained
from fedtext.text.tokens import BOS, EOS, UNK

CONFIG, MARK = "config.json", "exported_by"  # a key of the configuration, by which an exported model is known
# Where ``str.split`` splits a text.
BLANKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def check(experiment: Experiment) -> None:
    """Check that a model can be exported.

    Raises:
        UserError: It is no causal language model.
    """
    model = experiment.model
    if not isinstance(model, CausalLanguageModel):
        raise UserError(
            f"model {model.name} has no form in the package transformers: export is for model causal (an encoder's "
            "adapter is in the model's folder, in the format of peft)"
        )


def write(network: CausalNetwork, experiment: Experiment, entries: Sequence[str], pairs: str, folder: Path) -> None:
    """Write the folder, replacing one that ``write`` has written before.

    Args:
        network: The network.
        experiment: Its experiment.
        entries: The V entries of the word table.
        pairs: The tokenizer of byte pairs; empty: tokens are words.
        folder: The folder.

    Raises:
        UserError: It cannot be written, or is a folder with something else.
    """
    folder = folder.absolute()
    _check_place(folder)
    with writing(folder, "export"), os_errors(), replacement(folder) as draft:
        made = language_model(network, experiment, entries)
        made.save_pretrained(draft)
        tokenizer(entries, pairs).save_pretrained(draft)
        check_others(folder, {path.name for path in draft.iterdir()})


def _check_place(folder: Path) -> None:
    """Check that there is nothing, an empty folder, or a model that was exported before.

    Raises:
        UserError: There is something else.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, and a model is a folder: name another folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    try:
        exported = MARK in json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        exported = False
    if not exported:
        raise UserError(
            f"{folder} is there and has something else than a model that was exported before, which would be lost: "
            "name another folder"
        )


def language_model(network: CausalNetwork, experiment: Experiment, entries: Sequence[str]) -> Any:
    """Return the network as one of the package's causal language models.

    Args:
        network: The network.
        experiment: Its experiment.
        entries: The V entries of the word table.
    """
    assert isinstance(experiment.model, CausalLanguageModel)
    config = settings(experiment.model)
    config.vocab_size, config.tie_word_embeddings = len(entries), experiment.model.tied
    config.bos_token_id, config.eos_token_id = entries.index(BOS), entries.index(EOS)
    config.pad_token_id, config.dtype = config.eos_token_id, torch.float32
    setattr(config, MARK, "fedtext")
    made = pretrained.library().AutoModelForCausalLM.from_config(config)
    config.architectures = [type(made).__name__]
    if network.barred is not None:  # the package's model has no other way to leave them out of the softmax
        made.generation_config.suppress_tokens = network.barred.isinf().nonzero()[:, 0].tolist()
    with torch.no_grad():
        table = made.get_input_embeddings()
        table.weight.copy_(network.embedding.weight)
        if not experiment.model.tied:
            made.lm_head.weight.copy_(network.output_weight)
        for path, module in made.base_model.named_modules():
            if module is table:
                continue
            for name, tensor in module.named_parameters(recurse=False):
                source = network.decoder.get_submodule(path)
                found = _plain(source, name)
                turned = type(module).__name__ == "Conv1D" and not isinstance(source, type(module))
                tensor.copy_(found.t() if turned else found)
    return made.eval()


def _plain(module: nn.Module, name: str) -> Tensor:
    """Return a weight or bias with what an adapter adds to it. Query, key and value of GPT-2 are together."""
    if isinstance(module, Joined):
        return torch.cat([_plain(part, name) for part in (module.query, module.key, module.value)])
    found: Tensor = getattr(module, name)
    if name == "weight" and isinstance(module, LoRALinear):
        found = found + module.scale * (module.lora_B @ module.lora_A)
        if module.lora_residual is not None:
            found = found + module.scale * module.lora_residual
    return found


def tokenizer(entries: Sequence[str], pairs: str) -> Any:
    """Return the tokenizer of the package for the entries of a word table.

    Args:
        entries: <unk>, <s>, </s>, and the words or byte pairs.
        pairs: The tokenizer of byte pairs; empty: tokens are words, which blanks separate.
    """
    library = pretrained.library()
    import tokenizers

    if pairs:
        made = tokenizers.Tokenizer.from_str(json.dumps(_shifted(json.loads(pairs), entries)))
        own = [made.normalizer] if made.normalizer is not None else []
        made.normalizer = tokenizers.normalizers.Sequence([_without_ends(), *own])
    else:
        made = _of_words(entries)
    special = [BOS, EOS] if pairs else [UNK, BOS, EOS]  # with byte pairs <unk> of a text is text, as in training
    made.add_special_tokens(special)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, entries.index(BOS))]
    )
    ends = {"bos_token": BOS, "eos_token": EOS, "pad_token": EOS} | ({} if pairs else {"unk_token": UNK})
    # In a text <s>, </s> and <unk> are text, also within a word, though they are special tokens between texts.
    return library.PreTrainedTokenizerFast(tokenizer_object=made, split_special_tokens=True, **ends)


def _of_words(entries: Sequence[str]) -> Any:
    """Return a tokenizer of words as ``sentence_words`` has them: <s> and </s> of a text are unknown words."""
    import tokenizers

    ids = {word: number for number, word in enumerate(entries)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=UNK))
    made.normalizer = _without_ends()
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(f"[{_blanks()}]+"), "removed")
    return made


def _without_ends() -> Any:
    """Return a normalizer that writes <unk> for <s> and </s> between blanks, as ``sentence_words`` does."""
    import tokenizers

    alone = tokenizers.Regex(f"(?<![^{_blanks()}])(?:{BOS}|{EOS})(?![^{_blanks()}])")
    return tokenizers.normalizers.Replace(alone, UNK)


def _blanks() -> str:
    """Return ``BLANKS`` for a set of characters of a regular expression."""
    return "".join(f"\\x{{{ord(blank):X}}}" for blank in BLANKS)


def _shifted(content: dict[str, Any], entries: Sequence[str]) -> dict[str, Any]:
    """Return a tokenizer of byte pairs whose entries have the numbers of the word table.

    As in training, its special tokens are text here, tokens that were added to it are tokens, and characters that it
    does not know are its entry for them.
    """
    added = {token["content"]: token["id"] for token in content["added_tokens"]}
    ids = {**content["model"]["vocab"], **added}
    first = len(entries) - 1 - max(ids.values())
    names = {number: entry for entry, number in ids.items() if entry not in entries[:first]}
    shifted = [names.get(number, f"#{number}") for number in range(len(entries) - first)]
    vocabulary = {entry: number for number, entry in enumerate([*entries[:first], *shifted])}
    kept = [
        token | {"id": token["id"] + first}
        for token in content["added_tokens"]
        if not token["special"] and token["content"] not in entries[:first]
    ]
    unknown = ids.get(content["model"].get("unk_token"))
    model = {"vocab": vocabulary, "unk_token": None if unknown is None else shifted[unknown]}
    return content | {"added_tokens": kept, "model": content["model"] | model}
