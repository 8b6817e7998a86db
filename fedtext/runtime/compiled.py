"""C files of this package, compiled by the machine's compiler when they are first used; later processes find them."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedtext.errors import UserError
from fedtext.runtime.abandoned import remove_abandoned

PACKAGE = Path(__file__).parent.parent
BITS = {torch.float32: 32, torch.float64: 64}
DIGEST = 32  # bytes at the end of a library
PATIENCE_S = 300.0  # with a compiler, which takes seconds, and on a busy machine a minute
_MAKING = "making-"  # begins the names of folders in which libraries are made
COMPILERS = ("cc", "gcc", "clang")
NO_COMPILER = f"no C compiler was found ({', '.join(COMPILERS)}, or $CC); install one, such as gcc"
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
# Files whose products and sums are rounded one by one, as numpy's are; clang ignores a pragma in them with "fast".
ROUNDED = ("sums.c",)


@cache
def compiled(source: Path, dtype: torch.dtype) -> ctypes.CDLL:
    """Return a C file as a library, compiled unless that has been done on this kind of processor before.

    Libraries are kept in ``$XDG_CACHE_HOME/fedtext`` or ``~/.cache/fedtext``, if they can be, under a name that depends
    on the source, the headers, the compiler, its options and the processor. Nothing is downloaded.

    Args:
        source: The file, which includes ``numbers.h``.
        dtype: The type ``real`` of that header, one of ``BITS``.

    Raises:
        UserError: This machine has no C compiler, or it cannot compile the file.
    """
    compiler = _compiler()
    if compiler is None:
        raise UserError(NO_COMPILER)
    contract = "off" if source.name in ROUNDED else "fast"
    options = [*FLAGS, f"-ffp-contract={contract}", f"-DREAL_BITS={BITS[dtype]}"]
    command = [*compiler, *options]
    name = f"{source.stem}-{BITS[dtype]}-{_key(source, compiler, options)}.so"
    try:
        return _kept(source, command, _folder() / name)
    except (OSError, RuntimeError):  # it cannot be written, or there is no home: this process compiles for itself
        with tempfile.TemporaryDirectory() as own:
            library = Path(own, name)
            _compile(source, command, library)
            try:
                return ctypes.CDLL(str(library))
            except OSError as error:
                raise UserError(f"what {command[0]} made of {source.name} cannot be loaded: {error}") from error


def _kept(source: Path, command: list[str], library: Path) -> ctypes.CDLL:
    """Return a library that is kept, compiled if it is not there or damaged. Raises OSError if it cannot be kept."""
    library.parent.mkdir(parents=True, exist_ok=True)
    if not _whole(library):
        _compile(source, command, library)
    return ctypes.CDLL(str(library))


def _whole(library: Path) -> bool:
    """Return whether a library is there as it was compiled. A process that loads a truncated one may end at once."""
    content = library.read_bytes() if library.exists() else b""
    return content[-DIGEST:] == hashlib.sha256(content[:-DIGEST]).digest()


@cache
def places(*numbers: int) -> Any:
    """Return an array of ``place`` for a function in C."""
    return (ctypes.c_int64 * len(numbers))(*numbers)


def address(tensor: Tensor | None) -> int | None:
    """Return where the numbers of a contiguous tensor are; None, which is null in C, for None."""
    return None if tensor is None else tensor.data_ptr()


def array_address(array: Any) -> int:
    """Return where the numbers of a contiguous array are; its ``ctypes.data`` takes several times as long."""
    found: int = array.__array_interface__["data"][0]
    return found


def addresses(tensors: Sequence[Tensor]) -> Any:
    """Return an array of the addresses of contiguous tensors. It is never null, though there may be none."""
    return (ctypes.c_void_p * (len(tensors) + 1))(*(tensor.data_ptr() for tensor in tensors))


@cache
def compile_problem() -> str:
    """Compile all C files of this package for float32, and return why they cannot be used; empty if they can.

    For float64 they are compiled when they are first used.
    """
    sources = sorted(PACKAGE.rglob("*.c"), key=lambda source: source.name)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            list(pool.map(lambda source: compiled(source, torch.float32), sources))
        except UserError as error:
            return str(error)
    return ""


def compiler_name() -> str:
    """Return the first line of what the compiler says its version is. Raises UserError if there is none."""
    compiler = _compiler()
    if compiler is None:
        raise UserError(NO_COMPILER)
    return _run([*compiler, "--version"], "say its version").stdout.partition("\n")[0]


def _compiler() -> list[str] | None:
    """Return the command of a compiler: $CC, which may have options (``ccache gcc``), or the first one found.

    Raises:
        UserError: $CC is not a command.
    """
    try:
        asked = shlex.split(os.environ.get("CC", ""))
    except ValueError as error:
        raise UserError(f"$CC is not a command ({error}): correct it, or leave it out") from error
    for name, *options in [asked] if asked else ([compiler] for compiler in COMPILERS):
        if found := shutil.which(name):
            return [found, *options]
    if asked:
        raise UserError(f"$CC is {os.environ['CC']}, which is no command here: correct it, or leave it out")
    return None


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedtext"


def _key(source: Path, compiler: list[str], options: list[str]) -> str:
    """Return the name of what a library depends on: libraries for one processor may end a process on another."""
    version = _run([*compiler, "--version"], f"say its version ({source.name} is to be compiled)").stdout
    files = [source, *sorted(PACKAGE.rglob("*.h"))]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files) + version.encode())
    digest.update(" ".join([*compiler, *options]).encode())
    digest.update(f"{platform.system()} {platform.machine()} {platform.processor()} {_features()}".encode())
    return digest.hexdigest()[:16]


def _features() -> str:
    """Return the names of the processor's instructions; empty where the system does not tell (only Linux does)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return " ".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))


def _compile(source: Path, command: list[str], to: Path) -> None:
    """Compile a library, and append its digest.

    It is made in a folder of its own first: other processes may do the same at the same time.
    """
    remove_abandoned(to.parent.glob(f"{_MAKING}*"))
    with tempfile.TemporaryDirectory(prefix=_MAKING, dir=to.parent) as folder:
        made = Path(folder, to.name)
        done = _run([*command, "-o", str(made), str(source)], f"compile {source.name}")
        if done.returncode or not made.exists():
            lines = done.stderr.strip().splitlines() or ["no message"]
            problem = next((line for line in lines if "error" in line), lines[0])  # after those on what includes a file
            raise UserError(f"{command[0]} cannot compile {source.name}: {problem}")
        with made.open("ab") as file:  # loaders ignore what follows a library
            file.write(hashlib.sha256(made.read_bytes()).digest())
        os.replace(made, to)


def _run(command: list[str], what: str) -> subprocess.CompletedProcess[str]:
    """Run a compiler. Raises UserError if it cannot be run, or does not end."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=PATIENCE_S, check=False
        )
    except OSError as error:
        raise UserError(f"{command[0]} cannot {what}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{command[0]} did not {what} within {PATIENCE_S:g} s") from error
