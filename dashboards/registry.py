"""The best trial's model in MLflow's model registry (``tracking.register``)."""

from mlflow import MlflowClient
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from dashboards.mirror import MODEL

TAKEN = "RESOURCE_ALREADY_EXISTS"


def register(client: MlflowClient, name: str, run_id: str, description: str) -> ModelVersion:
    """Register the model of a run as a new version, unless it is one already.

    Args:
        client: The connection to the store.
        name: Name of the registered model, which is created if it does not exist.
        run_id: The run, whose artifacts have the model.
        description: Description of the version.

    Returns:
        The version.

    Raises:
        MlflowException: The store refuses it.
    """
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != TAKEN:
            raise
    for version in client.search_model_versions(f"name = '{name}'"):
        if version.run_id == run_id:
            return version
    source = f"{client.get_run(run_id).info.artifact_uri}/{MODEL}"
    return client.create_model_version(name, source, run_id, description=description)
