"""Data sets of the Hugging Face hub, and text files by URL. Every failure is reported in one sentence."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedtext.errors import UserError, option
from fedtext.runtime.folders import cache_folder, folders

TIMEOUT = 5.0  # seconds to wait for the hub's first answer


def check_hub_allowed(corpus: str, file: str, data: Path | None, dataset: str) -> None:
    """Check that no data folder is given, which would have to contain the corpus.

    The hub is asked only if neither --data nor $FEDTEXT_DATA is given.

    Args:
        corpus: Name of the corpus.
        file: The file that is missing in the folder.
        data: The folder given with --data, if any.
        dataset: Name of the data set on the hub.

    Raises:
        UserError: A folder is given.
    """
    if data is not None or os.environ.get("FEDTEXT_DATA"):
        raise UserError(
            f"corpus {corpus}: no {file} in {' or '.join(map(str, folders(data)))}: give its folder with "
            f"{option('data', 'FOLDER')} or $FEDTEXT_DATA, or neither of them to read {dataset} from the hub"
        )


def from_hub(corpus: str, file: str, data: Path | None, dataset: str, *names: str) -> Any:
    """Load a data set from the hub because a ``file`` is missing; from the cache if the hub cannot be reached.

    Args:
        corpus: Name of the corpus, for messages.
        file: The missing file.
        data: The folder given with --data, if any.
        dataset: OWNER/NAME on the hub.
        names: Name of the subset, if there are several.

    Raises:
        UserError: A data folder is given (see ``check_hub_allowed``), or the data set cannot be loaded.
    """
    check_hub_allowed(corpus, file, data, dataset)
    unreached = _unreached()
    with _offline(unreached is not None):
        return load_dataset(
            f"corpus {corpus}",
            f"there is no {file} in {' or '.join(map(str, folders(data)))}, and {dataset} on the hub"
            + (f", which was not reached within {TIMEOUT:g} s ({unreached})," if unreached else ""),
            f"give the file's folder with {option('data', 'FOLDER')} or $FEDTEXT_DATA",
            dataset,
            *names,
        )


def _unreached() -> str | None:
    """Return why the hub cannot be reached; None if it can. The hub's own client would retry for 30 s."""
    try:
        from huggingface_hub import constants, get_session
    except ImportError:
        return None  # load_dataset reports the missing package
    try:
        get_session().head(constants.ENDPOINT, timeout=TIMEOUT)
    except Exception as error:  # whatever the network raises
        return str(error).partition("\n")[0] or type(error).__name__
    return None


@contextmanager
def _offline(wanted: bool) -> Iterator[None]:
    """Restrict ``datasets`` to its cache, if ``wanted``."""
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
    """Call ``datasets.load_dataset`` with the cache folder of fedtext.

    Args:
        asker: The key or corpus that needs the data set; the message begins with it.
        what: Description of the data set, for the message.
        advice: End of the message: what to do.
        arguments, options: Passed to ``load_dataset``.

    Raises:
        UserError: The package is not installed, or the data set cannot be loaded.
    """
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{asker} needs the package datasets, which is not installed: pip install -c constraints.txt datasets"
        ) from error
    try:
        return datasets.load_dataset(*arguments, cache_dir=str(cache_folder() / "datasets"), **options)
    except Exception as error:  # from datasets, fsspec or the network: a user can only correct the address
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{asker}: {what} cannot be read ({reason}): {advice}") from error
