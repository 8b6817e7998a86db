"""System metrics of the driver's machine, by MLflow's own monitor (``tracking.system_metrics``)."""

import logging

from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

from dashboards.store import Store


def watch(store: Store, run_id: str) -> SystemMetricsMonitor:
    """Log CPU, memory, disk, network and GPUs of this machine until ``finish`` is called, every 10 seconds.

    A run that is continued has one curve. ``MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL`` changes the interval. While the
    store is away the monitor ends with a warning; training is not touched by it.

    Args:
        store: The store.
        run_id: The run that the metrics go to.

    Raises:
        MlflowException: psutil is not installed.
    """
    logging.getLogger("mlflow.system_metrics").setLevel(logging.WARNING)  # it would speak into the progress display
    monitor = SystemMetricsMonitor(run_id, resume_logging=True, tracking_uri=store.uri)
    monitor.start()
    return monitor
