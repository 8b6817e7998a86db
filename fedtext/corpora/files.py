"""Tables and lines read from files or from a hub, with one sentence for what is wrong with them."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtext.corpora.base import cache_folder
from fedtext.errors import UserError

if TYPE_CHECKING:
    import pyarrow


def read_table(path: Path, columns: Mapping[str, str], nullable: Collection[str] = ()) -> "pyarrow.Table":
    """These columns of a parquet or .csv file (with a header), of these Arrow types (``int64``, ``string``, ...).

    Raises UserError when the file cannot be read, has no such column, or leaves a place of one empty that is not
    ``nullable``.
    """
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in columns.items()])
    try:
        if path.suffix == ".csv":
            options = pyarrow.csv.ConvertOptions(column_types=schema)
            read = pyarrow.csv.read_csv(path, convert_options=options)
        else:
            with pyarrow.parquet.ParquetFile(path) as file:
                read = file.read([name for name in file.schema_arrow.names if name in columns])
        missing = [name for name in columns if name not in read.column_names]
        if missing:
            raise UserError(f"{path} has no column {missing[0]!r}: it must have {', '.join(columns)}")
        table = read.select(list(columns)).cast(schema)
    except (OSError, pyarrow.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path} cannot be read as {path.suffix[1:]} ({reason}): fetch it again") from error
    for name in columns:
        if table[name].null_count and name not in nullable:
            raise UserError(f"{path} has an empty place in column {name!r}: fetch it again")
    if not table.num_rows:
        raise UserError(f"{path} holds no rows: fetch it again")
    return table


def read_lines(path: Path) -> list[str]:
    """The lines of a text file; bytes that are not UTF-8 are marked as such in their word. Raises UserError."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as lines:
            return [line.rstrip("\r\n") for line in lines]
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): fetch it again") from error


def load_dataset(asker: str, what: str, advice: str, *arguments: Any, **options: Any) -> Any:
    """``datasets.load_dataset``, its files kept in the cache folder. Raises UserError: ``asker`` needs the package, or
    cannot read ``what`` it was asked for, and ``advice`` says what to do."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{asker} needs the package datasets, which is not installed: pip install -c constraints.txt datasets"
        ) from error
    try:
        return datasets.load_dataset(*arguments, cache_dir=str(cache_folder() / "datasets"), **options)
    except Exception as error:  # whatever datasets, fsspec or the network raise, the person can only act on the address
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{asker}: {what} cannot be read ({reason}): {advice}") from error
