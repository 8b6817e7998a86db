"""Data sets of the Hugging Face hub and text files by URL, with one sentence for why they cannot be read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtext.errors import UserError
from fedtext.runtime.folders import cache_folder, folders

TIMEOUT = 5.0  # seconds that the hub has to answer at all


def check_hub_allowed(corpus: str, file: str, data: Path | None, dataset: str) -> None:
    """Raises UserError if a person named a folder, which then must have the ``file``: the hub takes its place only
    where neither --data nor $FEDTEXT_DATA is given."""
    if data is not None or os.environ.get("FEDTEXT_DATA"):
        raise UserError(
            f"corpus {corpus}: no {file} in {' or '.join(map(str, folders(data)))}: give its folder with --data FOLDER "
            f"or $FEDTEXT_DATA, or neither of them to read {dataset} from the hub"
        )


def from_hub(corpus: str, file: str, data: Path | None, dataset: str, *names: str) -> Any:
    """A data set of the hub, in the place of a ``file`` that is not there; from the cache if the hub cannot be reached.
    Raises UserError if it may not be asked (see check_hub_allowed), or does not answer."""
    check_hub_allowed(corpus, file, data, dataset)
    unreached = _unreached()
    with _offline(unreached is not None):
        return load_dataset(
            f"corpus {corpus}",
            f"there is no {file} in {' or '.join(map(str, folders(data)))}, and {dataset} on the hub"
            + (f", which was not reached within {TIMEOUT:g} s ({unreached})," if unreached else ""),
            "give the file's folder with --data FOLDER or $FEDTEXT_DATA",
            dataset,
            *names,
        )


def _unreached() -> str | None:
    """Why the hub does not answer; None if it does. Asked once, since the hub's own client tries again for 30 s."""
    try:
        from huggingface_hub import constants, get_session
    except ImportError:
        return None  # load_dataset says what is missing
    try:
        get_session().head(constants.ENDPOINT, timeout=TIMEOUT)
    except Exception as error:  # whatever the network raises
        return str(error).partition("\n")[0] or type(error).__name__
    return None


@contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """Lets ``datasets`` look in its cache alone."""
    if not wanted:
        yield
        return
    import datasets.config
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def load_dataset(asker: str, what: str, advice: str, *arguments: Any, **options: Any) -> Any:
    """``datasets.load_dataset``, its files kept in the cache folder. Raises UserError: ``asker`` needs the package, or
    cannot read ``what`` it was asked for, and ``advice`` says what to do."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{asker} needs the package datasets, which is not installed: pip install -c constraints.txt datasets"
        ) from error
    try:
        return datasets.load_dataset(*arguments, cache_dir=str(cache_folder() / "datasets"), **options)
    except Exception as error:  # whatever datasets, fsspec or the network raise, the person can only act on the address
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{asker}: {what} cannot be read ({reason}): {advice}") from error
