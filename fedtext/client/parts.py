"""The private part of a client's model, for a model folder with ``save.model: clients``."""

import numpy as np
from numpy.typing import NDArray

from fedtext.client.evaluate import ready
from fedtext.client.host import Host
from fedtext.layout import is_table
from fedtext.state.trained import ClientPart


def part_of(host: Host, flat: NDArray[np.float32], round_: int, client: int) -> ClientPart:
    """Return the private parameters with which a client would evaluate after it received ``flat`` in this round.

    A table has a row for each word of the client's own vocabulary, or of the common one. In the common one, rows of
    words that the client does not have are initial values.

    Args:
        host: The host of the client.
        flat: The parameters that it received, flat.
        round_: Number of the round.
        client: Id of the client.
    """
    stack, method, rows_R = ready(host, flat, round_, client), host.method, host.clients[client].rows_R
    own, sent = host.experiment.own_vocabularies, host.experiment.shared_in
    private, fixes = host.experiment.private, host.experiment.model.fixes
    state: dict[str, NDArray[np.float32]] = {}
    for name, tensor in stack.fetched(0).items():
        server = fixes(name) and not private(name)  # it has what clients do not change, if it has a parameter at all
        alone = not sent(name, round_) and not method.mirrors(name) and not server
        if not alone and not (method.withholds and is_table(name)):
            continue
        values = tensor.numpy().copy()
        if is_table(name) and not own:
            whole = host.rows_of(flat, client, name, np.arange(len(host.rows), dtype=np.int32)).cpu().numpy()
            whole[rows_R] = values
            values = whole
        state[name] = values
    if not own:
        return ClientPart(state)
    first = host.rows.start  # 1 if the model has no row for <pad>
    return ClientPart(state, [*host.corpus.vocabulary[:first], *(host.corpus.vocabulary[first + r] for r in rows_R)])
