"""Checkpoints with a file of weights that is damaged or missing."""

import json
import re
import shutil
from argparse import Namespace
from pathlib import Path

import pytest
import torch
import transformers

from fedtext.errors import UserError
from fedtext.text.pretrained import network, word_vectors
from tests.checkpoints import PIECES, saved


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return saved("bert", tmp_path / "checkpoint")


def _in_several(checkpoint: Path, folder: Path, form: str) -> list[Path]:
    """Save a checkpoint's weights to files of this form, and return these."""
    shutil.copytree(checkpoint, folder)
    (folder / "model.safetensors").unlink()
    network = transformers.AutoModel.from_pretrained(checkpoint)
    if form == "model-*.safetensors":
        network.save_pretrained(folder, max_shard_size="1KB")
    else:
        tensors = network.state_dict()
        several = form == "pytorch_model-*.bin"
        names = {
            name: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" if several else form for i, name in enumerate(tensors)
        }
        for file in set(names.values()):
            torch.save({name: tensor for name, tensor in tensors.items() if names[name] == file}, folder / file)
        if several:
            index = {"metadata": {"total_size": 1}, "weight_map": names}
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return sorted(folder.glob(form))


@pytest.mark.parametrize(
    "form", ["model.safetensors", "model-*.safetensors", "pytorch_model.bin", "pytorch_model-*.bin"]
)
def test_a_damaged_file_of_weights_is_named(checkpoint: Path, tmp_path: Path, form: str) -> None:
    if form == "model.safetensors":
        shutil.copytree(checkpoint, tmp_path / "whole")
        files = [tmp_path / "whole" / form]
    else:
        files = _in_several(checkpoint, tmp_path / "whole", form)
    assert len(files) >= 1 + ("*" in form)
    assert word_vectors(str(tmp_path / "whole"), 8).vectors_WD.shape == (len(PIECES), 8)
    whole, last = files[-1].read_bytes(), files[-1]
    index = list(last.parent.glob("*.index.json"))
    faults = [(last, whole[: len(whole) // 2]), (last, b"no weights"), (last, b""), *((one, b"{") for one in index)]
    for file, damaged in faults:
        before = file.read_bytes()
        file.write_bytes(damaged)
        with pytest.raises(UserError) as caught:
            network(str(last.parent))
        file.write_bytes(before)
        assert f"in that folder ({file.name} is damaged): give a folder with a saved model" in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
    last.unlink()
    with pytest.raises(UserError, match=rf"in that folder \(.*{re.escape(last.name)}.*\): give a folder"):
        network(str(last.parent))


def test_a_file_that_has_more_than_weights_is_not_said_to_be_damaged(checkpoint: Path, tmp_path: Path) -> None:
    """As older training loops have saved some. It is not loaded: any code could be in it."""
    (file,) = _in_several(checkpoint, tmp_path / "whole", "pytorch_model.bin")
    torch.save(torch.load(file) | {"options": Namespace(epochs=3)}, file)
    with pytest.raises(UserError, match=r"in that folder \(pytorch_model.bin has other objects than tensors\): give a"):
        network(str(file.parent))
