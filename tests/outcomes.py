"""What a run computes, to be compared with another run."""

from typing import Any

from fedtext.records import RoundRecord
from fedtext.server.federation import Federation


def final(federation: Federation) -> tuple[Any, ...]:
    """Everything a run computes: server weights, each client's figures in each round and those pooled over clients,
    with what audits found and show and the server says of it, the clients' private states, and their parts of the
    model."""
    fleet, accuracies = federation.fleet, [seen(row) for row in federation.run()]
    clients = range(len(fleet.clients) - federation.experiment.method.pooled)
    parts = fleet.parts(fleet.broadcast(federation.flat), len(accuracies), clients)
    assert sorted(parts) == list(clients)
    kept = [
        ({name: t.tobytes() for name, t in part.state.items()}, part.vocabulary) for _, part in sorted(parts.items())
    ]
    return federation.flat.tobytes(), accuracies, fleet.private_states(), kept


def seen(record: RoundRecord) -> Any:
    kinds = ("AUC", "perplexity", "selected_", "attention_", "norm_", "trimmed", "geometric_", "krum_", "member_")
    kinds += ("Local_", "Global_")
    figures = {name: value for name, value in record.metrics.items() if name.startswith(kinds)}
    assert figures.keys() & {"AUC", "AUC_0", "perplexity_val"}
    return record.clients, figures, record.files
