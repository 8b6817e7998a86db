"""Settings every test shares."""

import os

# A test's Ray must not attach to a cluster that happens to run on this machine, nor report anywhere.
os.environ.pop("RAY_ADDRESS", None)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.pop("MLFLOW_TRACKING_URI", None)
