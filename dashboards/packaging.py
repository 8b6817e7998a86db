"""Model folders as MLflow models: ``mlflow models serve -m FOLDER`` answers with predictions of raw texts.

The files that MLflow needs are added to a model folder, and ``fedtext.api.serving`` reads it. What is served is the
installed fedtext: its code is not copied.
"""

import importlib.metadata
import json
import logging
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.trial import one_line
from fedtext.api.serving import CLIENT, TEXT, Server
from fedtext.config.packages import packages_of, requirement
from fedtext.errors import UserError

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

    from fedtext.api.model import Model

MLMODEL = "MLmodel"
LOADER = "fedtext.api.serving"
# Requests of an example are ours: a text of a client would be private.
EXAMPLES = ("well worth the money", "it stopped working after a week")
PACKAGES = ("fedtext", "torch", "mlflow", "pandas")


def package(folder: Path) -> str:
    """Add MLflow's files to a model folder: description, signature, example, requirements.

    Args:
        folder: The folder of a trained model.

    Returns:
        Why the model cannot be served, in a sentence; empty if it can.

    Raises:
        OSError: The folder cannot be written.
    """
    import mlflow.pyfunc
    import pandas
    from mlflow.models import Model as Description

    from fedtext.api.model import Model

    if (folder / MLMODEL).is_file():
        return ""
    logging.getLogger("mlflow.pyfunc").setLevel(logging.WARNING)  # it would speak into the progress display
    try:
        model = Model.load(folder)
        columns = {TEXT: list(EXAMPLES)} | _clients(model)
        example = pandas.DataFrame(columns)
        Server(model).predict(example)
    except UserError as error:
        return one_line(str(error))
    with tempfile.TemporaryDirectory() as draft:
        made = Path(draft) / "made"
        mlflow.pyfunc.save_model(
            made,
            loader_module=LOADER,
            signature=_signature(model),
            input_example=example,
            pip_requirements=[*_needed(), *_of_plugins(model)],
        )
        for file in made.iterdir():
            if file.name != MLMODEL:
                shutil.copyfile(file, folder / file.name)
        described = Description.load(made)
        described.model_size_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        described.save(folder / MLMODEL)  # last: a folder that has it is complete
    return ""


def history(folder: Path, run_id: str) -> str:
    """Return the value of the tag by which MLflow's pages know the model of a run; empty if it is not packaged."""
    from mlflow.models import Model as Description

    if not (folder / MLMODEL).is_file():
        return ""
    described = Description.load(folder)
    described.run_id, described.artifact_path = run_id, folder.name
    return json.dumps([described.get_tags_dict()])


def _clients(model: "Model") -> dict[str, list[str]]:
    """Return the column of clients of an example, if the model has personal models."""
    return {CLIENT: [model.clients[0]] * len(EXAMPLES)} if model.clients else {}


def _signature(model: "Model") -> "ModelSignature":
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Array, ColSpec, Map, Schema

    method = model.experiment.method
    alone = model.experiment.complete and method.shares and not method.separates
    # Of a model without clients too: MLflow drops columns that the signature lacks, and the shared model would answer.
    asks = [ColSpec("string", TEXT), ColSpec("string", CLIENT, required=not alone)]
    if model.experiment.language:
        words, shares = ColSpec(Array("string"), "next_words"), ColSpec(Array("double"), "probabilities")
        return ModelSignature(Schema(asks), Schema([words, shares, ColSpec("double", "perplexity")]))
    answers = [ColSpec("string", "label"), ColSpec("double", "probability"), ColSpec(Map("double"), "probabilities")]
    return ModelSignature(Schema(asks), Schema(answers))


def _of_plugins(model: "Model") -> list[str]:
    """Return the requirements of plug-ins that are in installed packages."""
    return [requirement(each) for each in packages_of(model.experiment.all_plugins) if each["name"]]


@cache
def _needed() -> tuple[str, ...]:
    # Without the build of a local version, +cpu, which package indexes do not have. A fedtext that a job brought along
    # is not installed, and has no version.
    named = []
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            named.append(f"{name}=={importlib.metadata.version(name).partition('+')[0]}")
    return tuple(named)
