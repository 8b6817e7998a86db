"""Load an experiment, and run it in this process."""

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedtext.accounting.entry import Entry
from fedtext.api.disclosed import disclosed
from fedtext.api.result import Result
from fedtext.client.audit_runner import write_files
from fedtext.client.local_fleet import LocalFleet
from fedtext.config import files
from fedtext.config.differences import differences, flattened, listed
from fedtext.config.engine import choose_engine, engine_reason, stack_size
from fedtext.config.experiment import Experiment
from fedtext.config.overrides import override, parse_overrides
from fedtext.corpora.prepare import prepare
from fedtext.corpora.types import Corpus
from fedtext.errors import UserError, option, spelled, writing
from fedtext.ledger import FILE, read
from fedtext.ledger.central import with_coefficients
from fedtext.records import RoundRecord
from fedtext.runtime import durable
from fedtext.runtime.compiled import compile_problem
from fedtext.runtime.devices import device_of
from fedtext.runtime.folders import folder_of
from fedtext.runtime.lock import locked
from fedtext.runtime.paths import is_uri, local_path, with_slashes
from fedtext.server.federation import Federation
from fedtext.server.start import start
from fedtext.server.trained import trained
from fedtext.state import checkpoint, model_folder
from fedtext.state.checkpoint import OtherRunError
from fedtext.state.fingerprint import SCIENCE, fixed_length
from fedtext.state.model_folder import EXPERIMENT, RECORDS
from fedtext.state.seal import state_key
from fedtext.training.config import Engine

logger = logging.getLogger(__name__)
ROUNDS = "training.rounds"


def load(
    experiment: str | Path | Mapping[str, Any] | Experiment, *overrides: str, plugins: Iterable[str | Path] = ()
) -> Experiment:
    """Load an experiment.

    Args:
        experiment: The path of an experiment file, the name of one in ``tune_spaces/``, or its content.
        overrides: Changes to it, ``key=value``, the value in YAML: ``"training.rounds=3"``.
        plugins: Files, or installed modules, with parts of your own, in addition to those that the experiment lists.

    Returns:
        The experiment with every default filled in. It is immutable.

    Raises:
        UserError: One sentence for each problem, naming the key.
    """
    more = [plugins] if isinstance(plugins, str | Path) else list(plugins)
    if isinstance(experiment, Experiment) and not overrides and not more:
        return experiment
    if isinstance(experiment, str | Path):
        return files.load(experiment, overrides, more=more)[1]
    pairs = parse_overrides(overrides)
    content = override(files.content_of(experiment), pairs)
    return files.validate(files.with_plugins(content, more=more), overridden=pairs)


def run(
    experiment: str | Path | Mapping[str, Any] | Experiment,
    *overrides: str,
    data: str | Path | None = None,
    on_round: Callable[[RoundRecord], object] | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
) -> Result:
    """Run an experiment in this process, without Ray and MLflow.

    Its ``space``, ``baselines`` and ``seeds``, which are for sweeps, are ignored. Before the first round the engine,
    and what the run reveals and guarantees, are logged with level INFO.

    Args:
        experiment: As in ``load``.
        overrides: Changes to it, ``key=value``.
        data: The folder of corpora, or its URI such as ``s3://bucket/folder``; None: $FEDTEXT_DATA, or the user's cache
            folder.
        on_round: Called with each round's record, after its checkpoint has been written.
        device: The torch device that clients train on.
        out: A folder for checkpoints, ledger, records, experiment and model; None: nothing is written.
        resume: Continue the run in ``out``. It gives the same bits as one that was never interrupted.

    Returns:
        The history of the run, its privacy ledger and its model.

    Raises:
        UserError: The experiment, the data, the device or ``out`` cannot be used, or an argument is of another type.
        ClientError: The training of a client failed.
    """
    single = load(experiment, *overrides).model_copy(update={"space": {}, "baselines": (), "seeds": 1})
    gpu = device_of(device).type != "cpu"
    with _writable(None if out is None else _local(out), resume) as folder:
        single = choose_engine(single, gpu, compile_problem(), _engine_in(folder) if folder else None)
        single = with_coefficients(single, checkpoint.coefficients(folder)) if folder else single
        place = None if data is None else folder_of(data, option("data"))
        facts = single.corpus, single.model.embedding, single.seed, place, single.own_vocabularies
        corpus = prepare(*facts, audited=bool(single.audits))
        federation = _started(single, corpus, device, folder)
        for record in federation.run():
            if federation.notice:
                logger.warning(federation.notice)
            if folder:
                write_files(record, folder)
            if on_round:
                on_round(record)
        history = tuple(checkpoint.history(folder) if folder else federation.history)
        result = Result(single, history, _ledger(federation, history), trained(federation, corpus))
        if folder:
            result.write_records(folder)
            if single.save.model != "none":
                model_folder.write(result.trained, folder / model_folder.FOLDER)
    return result


def _local(out: str | Path) -> Path:
    """Return the folder that is given as ``out``. Raises UserError if it is empty, or a URI."""
    if is_uri(with_slashes(out)):
        raise UserError(
            f"{option('out')}: {out} is a URI, and a run in one process is kept in a local folder: name one (what "
            f"{spelled('run')} runs is copied to the URI of its key storage)"
        )
    return local_path(out, option("out"))


def _ledger(federation: Federation[LocalFleet], history: Sequence[RoundRecord]) -> list[Entry]:
    """Return the guarantees of a completed run, with what was measured in its last round."""
    if history and FILE in history[-1].files:
        return read(history[-1].files[FILE])
    return federation.ledger(len(history))


@contextlib.contextmanager
def _writable(folder: Path | None, resume: bool) -> Iterator[Path | None]:
    """Make the folder of a run, check that its files can be written, and keep other commands out of it in this block.
    If the block fails it is removed, unless there was one, or something is in it.

    Raises:
        UserError: They cannot, another command works on the folder, or it has a run that is not to be continued.
    """
    if folder is None:
        yield None
        return
    there = folder.exists()
    try:
        with contextlib.ExitStack() as block:
            with writing(folder, option("out")):
                folder.mkdir(parents=True, exist_ok=True)
                tempfile.TemporaryFile(dir=folder).close()
                ours = block.enter_context(locked(folder, remove=True))
            if not ours:
                raise UserError(
                    f"{option('out')}: {folder} is being worked on by another command: wait for it, or name another "
                    "folder"
                )
            _check_free(folder, resume)
            yield folder
    except BaseException:
        if not there:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _check_free(folder: Path, resume: bool) -> None:
    """Raise UserError if a folder has a run that is not to be continued, or files that a run would replace."""
    begun = any(folder.glob("round-*"))
    if begun and not resume:
        raise UserError(
            f"{option('out')}: {folder} has a run already: name another folder, or continue it with resume=True"
        )
    if not begun and (folder / RECORDS).exists() and not (folder / EXPERIMENT).exists():
        raise UserError(f"{option('out')}: {folder} has a {RECORDS}, which a run would replace: name another folder")
    model_folder.check_place(folder / model_folder.FOLDER)


def _engine_in(folder: Path) -> Engine | None:
    """Return the engine of the run in a folder; None if there is none.

    Raises:
        UserError: The folder has an experiment file that a run has not written, and would replace.
    """
    kept = folder / EXPERIMENT
    if not kept.is_file():
        return None
    content = files.read(kept)
    try:
        engine: Engine = content["training"]["engine"]
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{option('out')}: {kept} is not of a run, which would replace it: name another folder"
        ) from error
    return engine


def _started(experiment: Experiment, corpus: Corpus, device: str, folder: Path | None) -> Federation[LocalFleet]:
    """Start a run, or continue the one in ``folder``, which keeps its experiment."""
    try:
        fleet = partial(LocalFleet, experiment, corpus, device=device)
        federation = start(experiment, corpus, fleet, folder, key=state_key() if folder else None)
    except OtherRunError as error:
        raise UserError(_other_run(experiment, folder)) from error
    if folder:
        with writing(folder, option("out")):
            files.keep_plugins(experiment, folder)
            durable.write(folder / EXPERIMENT, files.resolved(experiment))
    stack = stack_size(experiment, len(federation.fleet.clients))[1]
    logger.info("%s; %s", engine_reason(experiment), stack)
    if logger.isEnabledFor(logging.INFO):  # accounting can take seconds
        for sentence in disclosed(experiment, corpus):
            logger.info("%s", sentence)
    return federation


def _other_run(experiment: Experiment, folder: Path | None) -> str:
    """Return a message about a folder whose run is not that of an experiment. It names the keys that differ, of which
    the number of rounds is one only if a run of this experiment cannot be made longer."""
    assert folder is not None, "a run without a folder is not continued"
    other = "from other data, with other plug-ins, or by another version of fedtext"
    if (folder / EXPERIMENT).is_file():
        kept, now = files.read(folder / EXPERIMENT), experiment.model_dump(mode="json")
        before, after = (flattened({key: one[key] for key in sorted(SCIENCE & set(one))}) for one in (kept, now))
        changed = differences(before, after)
        if not (why := fixed_length(experiment)):
            changed.pop(ROUNDS, None)
        elif ROUNDS in changed:  # the coefficients of noise for as many rounds are other ones
            changed.pop("server.noise.mechanism.coefficients", None)
        if list(changed) == [ROUNDS]:
            what = "more" if after[ROUNDS] > before[ROUNDS] else "fewer"
            return f"{option('out')}: the run in {folder} cannot have {what} rounds: {why}; name another folder"
        if changed:
            other = f"otherwise ({listed(changed)})"
    return f"{option('out')}: the run in {folder} was begun {other}: name another folder, or remove that one"
