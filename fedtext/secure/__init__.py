"""Secure aggregation: the server learns the sum of the clients' updates, and no update.

The protocol is SecAgg+ (Bell et al. 2020), that of Bonawitz et al. (2017) on a sparse graph, against a server that
follows the protocol and looks at all that it receives. In a round

1. each client makes two pairs of keys and a seed, and sends the public keys (``keys``);
2. it divides its seed and the private key of its masks into shares, one for each of its neighbours in a random graph,
   and sends them encrypted (``shares``); the server passes them on (``receive``);
3. it trains, turns its update into integers and adds masks to them: one from its seed, and one for each neighbour from
   the key that they agree on, which the neighbour subtracts;
4. the server adds up what it receives. It then asks clients for shares (``open``): of the seed of each neighbour whose
   update is in the sum, or of the private key of each whose update is not, never of both. With ``threshold`` of the
   shares it removes the masks that are left.

All keys are drawn from the operating system's entropy in each round, and none is in a checkpoint: masks cancel, so that
results do not depend on them, and a round that is repeated after a fault has other keys and the same sum.
"""
