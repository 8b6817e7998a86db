"""The workloads, and the files of their results. Imports no fedtext: every system's module imports this one."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Workload:
    """FedAvg over all clients: ``texts`` synthetic texts of two classes each, one local epoch of SGD with momentum;
    embedding, packed bidirectional GRU, masked mean, two-layer MLP."""

    name: str
    vocabulary: int
    dim: int
    hidden: int
    head: int
    clients: int
    texts: int
    longest: int = 200
    rounds: int = 3
    batch: int = 8
    lr: float = 0.01
    momentum: float = 0.9
    seed: int = 0

    def __str__(self) -> str:
        return (
            f"embedding {self.vocabulary:,} x {self.dim}, BiGRU {self.hidden}, {self.clients} clients x {self.texts} "
            f"texts of at most {self.longest} tokens, batch {self.batch}, {self.rounds} rounds"
        )


# About 20 minutes on two cores. More than one batch per client in the first two, so that their order counts.
FULL = (
    Workload("text", 50_000, 200, 64, 64, clients=16, texts=32, rounds=2),
    Workload("mid", 5_000, 64, 32, 32, clients=100, texts=16, longest=100, rounds=2),
    Workload("overhead-100", 200, 8, 8, 8, clients=100, texts=8, longest=10),
    Workload("overhead-1000", 200, 8, 8, 8, clients=1000, texts=8, longest=10, rounds=2),
)
QUICK = (
    Workload("text", 50_000, 200, 64, 64, clients=4, texts=16, rounds=2),
    Workload("mid", 5_000, 64, 32, 32, clients=10, texts=16, longest=100, rounds=2),
    Workload("overhead-100", 200, 8, 8, 8, clients=100, texts=8, longest=10, rounds=2),
)


@dataclass(frozen=True)
class Task:
    """One run of one workload: ``inputs`` holds data.npz and initial.npz, ``folder`` receives what the run reports."""

    workload: Workload
    workers: int
    engine: str  # fedtext's; the others ignore it
    inputs: Path
    folder: Path

    def write(self) -> Path:
        file = self.folder / "task.json"
        file.write_text(json.dumps(asdict(self), default=str))
        return file

    @classmethod
    def read(cls, file: str | Path) -> "Task":
        content = json.loads(Path(file).read_text())
        paths = {name: Path(content[name]) for name in ("inputs", "folder")}
        return cls(**content | paths | {"workload": Workload(**content["workload"])})

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
