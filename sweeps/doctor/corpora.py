"""Files of corpora: which there are, whether they can be read, and which experiments need them."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from fedtext.config.spaces import SPACES
from fedtext.corpora import CORPORA
from fedtext.corpora.files import check_utf8
from fedtext.errors import UserError, option
from fedtext.runtime.folders import check_folder, folder_of, folders
from sweeps.doctor.finding import About, Finding, size

DIGEST = 12  # digits shown of a file's SHA-256
_about = About("corpora")


def folder(data: str | None) -> tuple[Path | None, Finding | None]:
    """Return the local folder of what is given with --data, or the problem with it."""
    try:
        found = None if data is None else folder_of(data, option("data"))
        check_folder(found)
    except UserError as error:
        return None, _about.problem(str(error), "correct it")
    return found, None


def data_files(data: Path | None) -> Iterator[Finding]:
    """Yield what is found of the files of named corpora.

    Args:
        data: The folder given with --data, if any.
    """
    experiments, missing = needing(), []
    where = " or ".join(map(str, folders(data)))
    for name, corpus in CORPORA.items():
        needed_by = f" ({', '.join(experiments[name])})" if name in experiments else ""
        if not corpus.files:
            continue
        found = files(corpus.files, data)
        if found:
            yield read(f"{name}{needed_by}", found)
        else:
            missing.append(f"{name}{needed_by}")
    if missing:
        yield _about.ok(
            f"not in {where}: {', '.join(missing)}; experiments on these need {option('data', 'FOLDER')} or the hub"
        )


def needing() -> dict[str, list[str]]:
    """Return the experiments of the repository by the corpus that they are on."""
    found: dict[str, list[str]] = {}
    for file in sorted(SPACES.glob("*.yaml")):
        corpus = yaml.safe_load(file.read_text()).get("corpus")
        name = corpus.get("name") if isinstance(corpus, dict) else corpus
        found.setdefault(str(name), []).append(file.name)
    return found


def files(patterns: tuple[str, ...], data: Path | None) -> list[Path]:
    """Return the files with such names in the data folders, and in folders in these.

    Args:
        patterns: Names, with * for any characters.
        data: The folder given with --data, if any.
    """
    places = [place for folder in folders(data) for place in (folder, *sorted(folder.glob("*/"))) if folder.is_dir()]
    return sorted({file for place in places for name in patterns for file in place.glob(name) if file.is_file()})


def read(what: str, found: list[Path]) -> Finding:
    """Read each file to its end, and give its size and digest.

    Args:
        what: The corpus, and who needs it.
        found: Its files.
    """
    lines = []
    for file in found:
        try:
            with file.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            check(file)
        except (UserError, OSError) as error:
            return _about.problem(f"{what}: {error}", "" if isinstance(error, UserError) else "make it readable")
        lines.append(f"{file.name} {size(file.stat().st_size)} sha256 {digest[:DIGEST]}")
    return _about.ok(f"{what}: {', '.join(lines)}")


def check(file: Path) -> None:
    """Read a table or a text to its end. Raises UserError if it is damaged."""
    import pyarrow
    import pyarrow.parquet

    if file.suffix == ".parquet":
        try:
            with pyarrow.parquet.ParquetFile(file) as table:
                for _ in table.iter_batches():
                    pass
        except (OSError, pyarrow.ArrowException) as error:
            reason = str(error).partition("\n")[0].rstrip(".")
            raise UserError(f"{file} cannot be read as parquet ({reason}): fetch it again") from error
    elif file.suffix != ".dat":  # MovieLens, in Latin-1
        check_utf8(file)
