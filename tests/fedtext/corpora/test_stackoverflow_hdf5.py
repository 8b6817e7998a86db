"""The published HDF5 files of StackOverflow: what they need, and files of another layout."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtext.errors import UserError
from tests.fedtext.corpora.test_stackoverflow import read


def test_hdf5_needs_its_library_and_the_test_file(tmp_path: Path) -> None:
    path = tmp_path / "stackoverflow_train.h5"
    path.write_bytes(b"")
    if importlib.util.find_spec("h5py") is None:
        with pytest.raises(UserError, match=r"needs h5py, which is not installed: pip install 'fedtext\[hdf5\]'"):
            read(path)
        return
    with pytest.raises(UserError, match=r"corpus.test: published needs the file stackoverflow_test.h5 beside .*latest"):
        read(path)
    with pytest.raises(UserError, match=r"cannot be read as the published HDF5 file"):
        read(path, test="latest")


@pytest.mark.parametrize("content", ["numbers", "a number", "no features", "lengths"])
def test_hdf5_of_another_layout_is_told_in_a_sentence(content: str, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "stackoverflow_train.h5"
    made: dict[str, Any] = {
        "numbers": {"a/creation_date": np.arange(4), "a/tokens": np.arange(4)},
        "a number": {"a/creation_date": 4, "a/tokens": 4},
        "no features": {"a": np.arange(4)},
        "lengths": {"a/creation_date": np.array([b"1"] * 4), "a/tokens": np.array([b"x"] * 3)},
    }
    with h5py.File(path, "w") as file:
        for name, data in made[content].items():
            file.create_dataset(f"examples/{name}", data=data)
    with pytest.raises(UserError, match=r"cannot be read as the published HDF5 file .*: fetch it again"):
        read(path, test="latest")
