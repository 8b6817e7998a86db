"""Delivery of records that MLflow lacks: sent to it, and sent again later where it is away or refuses something."""

import time
from collections.abc import Sequence

import requests
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException, RestException
from sqlalchemy.exc import SQLAlchemyError

from dashboards.experiment_page import Page
from dashboards.mirror import Mirror
from dashboards.store import Store, cause
from dashboards.trial import say

RETRY_SECONDS = 60.0  # between two attempts: each one waits for a server that does not answer
SILENCE_SECONDS = 10.0  # an attempt that fails after more than this has waited for a store that does not answer
UNDELIVERED = (MlflowException, SQLAlchemyError, requests.RequestException)


class Delivery:
    """The way from the runs of one run folder to one MLflow store.

    Attributes:
        experiment_id: Id of the MLflow experiment; None until MLflow has been reached.
        told: Whether a failure has been told, and others are not.
    """

    def __init__(self, store: Store, page: Page, retry_seconds: float) -> None:
        """Create it, without contacting MLflow yet.

        Args:
            store: The MLflow store.
            page: The page of the MLflow experiment.
            retry_seconds: Between two attempts to reach the store.
        """
        self.store, self.retry_seconds = store, retry_seconds
        self.experiment_id: str | None = None
        self._page = page
        self._client: MlflowClient | None = None
        self._retry_at = self._files_retry_at = 0.0
        self.told = self._told_anew = False

    def send(self, mirrors: Sequence[Mirror], parent: Mirror | None, changed: Mirror | None, final: bool) -> None:
        """Deliver what any run lacks.

        Args:
            mirrors: All runs; the parent first, since the others need its id.
            parent: The parent run, if there is one.
            changed: The run that has something new.
            final: Whether that has ended, so that its table and spool are written now.
        """
        for mirror in mirrors:
            self._send(mirror, parent, final and mirror is changed, save=mirror is changed)

    def last(self, mirrors: Sequence[Mirror], parent: Mirror | None) -> None:
        """Deliver everything once more at the end, however short ago that was tried.

        Args:
            mirrors: All runs, the parent first.
            parent: The parent run, if there is one.
        """
        self._retry_at = self._files_retry_at = 0.0
        for mirror in mirrors:
            mirror.retry_at = mirror.files_retry_at = 0.0
        for mirror in mirrors:
            self._send(mirror, parent, final=True)

    def connect(self) -> tuple[MlflowClient, str]:
        """Return the client, and the id of the MLflow experiment, which is created if it does not exist."""
        if self._client is None:
            self._client = self.store.client()
        if self.experiment_id is None:
            self.experiment_id = self._page.create(self._client, self.store)
        self._page.deliver(self._client, self.experiment_id)
        return self._client, self.experiment_id

    def tell(self, error: Exception) -> None:
        """Print once that MLflow did not take something."""
        if not self.told:
            say(
                f"MLflow at {self.store.shown} did not take what was sent: {cause(error)}; training goes on, and "
                "everything is kept and delivered later"
            )
        self.told = True

    def _tell_anew(self, mirror: Mirror) -> None:
        """Print once that runs are recorded anew, and where they were before."""
        if not self._told_anew:
            before = (
                f"was recorded at {mirror.recorded_at}" if mirror.recorded_at != self.store.shown else "was deleted"
            )
            say(
                f"MLflow at {self.store.shown} does not have the run of {mirror.folder.name}, which {before}: "
                "it is recorded anew"
            )
        self._told_anew = True

    def _send(self, mirror: Mirror, parent: Mirror | None, final: bool, save: bool = False) -> None:
        tried = self._send_records(mirror, parent)
        tried = self._send_files(mirror, final) or tried
        if tried or save or final:
            mirror.save(spool=final or mirror.end is not None or mirror.status not in ("", "RUNNING"))

    def _send_records(self, mirror: Mirror, parent: Mirror | None) -> bool:
        """Deliver records. Returns whether anything was tried."""
        if not mirror.owes_records or time.monotonic() < max(self._retry_at, mirror.retry_at):
            return False
        above = parent.run_id if parent and mirror is not parent else None
        if parent and mirror is not parent and not above:
            return False  # a child that is created without its parent could not be attached to it later
        try:
            client, experiment_id = self.connect()
            mirror.deliver_records(client, experiment_id, above)
            if mirror.anew:
                self._tell_anew(mirror)
        except UNDELIVERED as error:
            mirror.retry_at = time.monotonic() + self.retry_seconds
            if self.store.remote and not isinstance(error, RestException):
                # No response at all: do not wait for it again for each of the other runs
                self._retry_at = mirror.retry_at
            self.tell(error)
        return True

    def _send_files(self, mirror: Mirror, final: bool) -> bool:
        if not (self._client and mirror.run_id and mirror.owes_files(final)):
            return False
        began = time.monotonic()
        if began < max(self._retry_at, self._files_retry_at, mirror.files_retry_at):
            return False
        try:
            mirror.deliver_files(self._client, final)
        except Exception as error:  # of whatever library reaches the files' store, as botocore's: records come first
            mirror.files_retry_at = time.monotonic() + self.retry_seconds
            if time.monotonic() - began > SILENCE_SECONDS:  # do not wait for it again for each of the other runs
                self._files_retry_at = mirror.files_retry_at
            self.tell(error)
        return True
