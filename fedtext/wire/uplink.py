"""The update that a client sends. Its counterpart is decoder.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedtext.config.experiment import Experiment
from fedtext.corpora.types import ClientData
from fedtext.layout import TABLE, Layout, not_finite
from fedtext.mechanisms.base import Tensors, steps
from fedtext.messages import Update
from fedtext.methods import layouts
from fedtext.metrics import reported
from fedtext.models.ranks import ALIKE, Ranks
from fedtext.state.noise_key import NoiseKey


class Uplink:
    """Applies the uplink's mechanisms to updates.

    Args:
        experiment: The experiment.
        layout: The shared tensors, tables with all rows.
        noise: The run's key, from which mechanisms draw.
        withheld: Rows of the table that are not sent; if all rows are, they are sent as unchanged. None: there are
            none.
        sent: What a client, by its id, sends in a round instead of its update; None: every client sends that.
        ranks: What each client has of the shared tensors.
    """

    def __init__(
        self,
        experiment: Experiment,
        layout: Layout,
        noise: NoiseKey,
        withheld: NDArray[np.int64] | None = None,
        sent: Callable[[Tensors, int, int], Tensors] | None = None,
        ranks: Ranks = ALIKE,
    ) -> None:
        self.experiment, self.layout, self.noise, self.withheld = experiment, layout, noise, withheld
        self.sent, self.ranks, self.own_rows = sent, ranks, experiment.own_rows
        self._sent_in: tuple[int, Sequence[str]] = 0, ()  # a round, and what `sent_in` returned for it
        self.down = layouts.received(experiment.method, layout, experiment.model.fixes, experiment.uplink)
        self.asked = [name for mechanism in experiment.uplink for name in mechanism.asks]
        # Shapes of the tensors sent beside updates.
        self.extras = layouts.extras(experiment.method, layout, experiment.model.fixes)
        self.steps = steps(experiment.uplink)
        self.metrics = {f"{place}/{made.name}": made.metrics for place, made in enumerate(experiment.uplink)}
        report = [type(made).metrics for made in experiment.uplink]  # that of its base class, if it has none of its own
        self.times = {name: report[:place].count(report[place]) + 1 for place, name in enumerate(self.metrics)}

    def update(
        self,
        flat: NDArray[np.float32],
        parameters: Mapping[str, Tensor],
        round_: int,
        data: ClientData,
        extras: Mapping[str, NDArray[np.float32]] | None = None,
        update: Mapping[str, NDArray[np.float32]] | None = None,
    ) -> tuple[Update | None, dict[str, float]]:
        """Return a client's update, after the uplink's mechanisms.

        Args:
            flat: The shared parameters that the client received.
            parameters: Its parameters now, on the CPU, with the table in its own rows.
            round_: The round, counted from 1.
            data: The client.
            extras: Tensors that its method sends beside the update, by ``group/name``, tables in the client's own rows.
            update: What its method sends in the place of the change of its parameters, tables in the client's own rows;
                None: that change.

        Returns:
            The update, None if nothing is shared, and the mechanisms' metrics of it.

        Raises:
            ValueError: The output of the mechanisms is not finite. The parameters have been checked before.
        """
        if not self.layout.shapes:
            return None, {}
        held = self._held(data)
        rows = data.rows_R[held]
        received = self.ranks.held(self.received(flat, round_), data.id)
        delta = self._delta(received, self.ranks.held(parameters, data.id), held, rows, update or {})
        self._add_extras(extras or {}, delta, received, data)
        if self.asked:
            broadcast = self.down.views(flat)
            received |= {name: broadcast[name] for name in self.asked}
        if self.sent:
            delta = self.sent(delta, data.id, round_)
        own = self.own_rows and TABLE in received
        return self.applied(delta, received, data.id, len(data.train), round_, rows if own else None)

    def received(self, flat: NDArray[np.float32], round_: int) -> Tensors:
        """Return the parameters that a client sends a change of in a round, as it received them."""
        views = self.layout.views(flat)
        return {name: views[name] for name in self.sent_in(round_)}

    def sent_in(self, round_: int) -> Sequence[str]:
        """Return the names of the tensors of which clients send a change in a round."""
        if self._sent_in[0] != round_:  # every client of a round asks
            shared_in = self.experiment.shared_in
            self._sent_in = round_, [name for name in self.layout.shapes if shared_in(name, round_)]
        return self._sent_in[1]

    def applied(
        self,
        delta: Tensors,
        received: Tensors,
        client: int,
        samples: int,
        round_: int,
        rows: NDArray[np.int32] | None = None,
    ) -> tuple[Update, dict[str, float]]:
        """Apply the uplink's mechanisms to an update.

        Args:
            delta: The update, with what is sent beside it.
            received: The parameters that it changes, tables with all rows, with what mechanisms ask for.
            client: The client's id, by which its draws are told apart from those of others.
            samples: Number of its train texts.
            round_: The round, counted from 1.
            rows: Rows of the table that ``delta`` has; None: all.

        Returns:
            What is sent, and the mechanisms' metrics of this update.

        Raises:
            ValueError: The output of the mechanisms is not finite, or their metrics are not as they have to be.
        """
        if rows is not None and self.steps:
            received = received | {TABLE: received[TABLE][rows]}
        said: dict[str, float] = {}
        for name, step in self.steps.items():
            sent = step(delta, received, self.noise.generator(f"uplink/{name}", round_, client))
            self._add_metrics(name, self.metrics[name](delta, received, sent), said)
            delta = sent
        if self.steps and not_finite({name: tensor for name, tensor in delta.items() if tensor.dtype.kind == "f"}):
            raise ValueError("what its uplink would send is not finite: lower training.optimizer.lr, or the noise")
        return Update(client, samples, delta, rows), said

    def _add_metrics(self, step: str, found: Mapping[str, float], said: dict[str, float]) -> None:
        """Add the metrics of a mechanism. Raises ValueError if they are none, or replace others.

        Args:
            step: Its place in the uplink, and its name. If it stands there a second time, or inherits the metrics of
                one that stands there, the names of its metrics end in ``_2``: both report the same ones.
            found: The metrics.
            said: Those of the mechanisms before it.
        """
        mechanism, times, problem = step.partition("/")[2], self.times[step], reported.problem_of(found)
        if times > 1 and not problem:
            found = {f"{name}_{times}": value for name, value in found.items()}
        if not problem and (twice := next((name for name in found if name in said), "")):
            problem = f"metric {twice}, which another one of uplink reports: choose another name"
        if problem:
            raise ValueError(f"mechanism {mechanism}: metrics returned {problem}")
        said |= reported.as_floats(found)

    def _held(self, data: ClientData) -> Any:
        """Return which of a client's rows of the table may be sent."""
        if self.withheld is None:
            return slice(0, data.train_rows)
        return np.flatnonzero(~np.isin(data.rows_R[: data.train_rows], self.withheld))

    def _delta(
        self,
        received: Tensors,
        parameters: Mapping[str, Tensor],
        held: Any,
        rows: NDArray,
        update: Mapping[str, NDArray[np.float32]],
    ) -> Tensors:
        """Return the changes of the tensors that are shared in a round, or what the method sends in their place."""
        delta: Tensors = {}
        for name, before in received.items():
            given = update.get(name)
            after = parameters[name].numpy()
            if name == TABLE:
                change = before.take(rows, axis=0)
                if given is None:
                    np.subtract(after[held], change, out=change)
                else:
                    change[...] = given[held]
                delta[name] = change if self.own_rows else np.zeros_like(before)
                if not self.own_rows:
                    delta[name][rows] = change
            else:
                delta[name] = after - before if given is None else given
        return delta

    def _add_extras(
        self, extras: Mapping[str, NDArray[np.float32]], delta: Tensors, received: Tensors, data: ClientData
    ) -> None:
        """Add the extras of a method to an update. Their received values are zeros: the server does not send them."""
        if set(extras) != set(self.extras):
            raise ValueError(f"its method sends {sorted(extras)} beside its update, not {sorted(self.extras)}")
        for name in self.extras:  # not in the method's order, which may change: mechanisms draw tensor by tensor
            values = extras[name]
            delta[name] = values
            if name.rpartition("/")[2] == TABLE:  # all of its rows are sent
                delta[name] = np.zeros(self.extras[name], np.float32)
                delta[name][data.rows_R] = values
            received[name] = np.zeros_like(delta[name])
