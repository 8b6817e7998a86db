"""Tables read from files, with one sentence for what is wrong with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedtext.errors import UserError

if TYPE_CHECKING:
    import pyarrow


def read_table(path: Path, columns: Mapping[str, str]) -> "pyarrow.Table":
    """These columns of a parquet or .csv file (with a header), of these Arrow types (``int64``, ``string``, ...).

    Raises UserError when the file cannot be read, has no such column, or leaves a place of one empty.
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
        if table[name].null_count:
            raise UserError(f"{path} has an empty place in column {name!r}: fetch it again")
    if not table.num_rows:
        raise UserError(f"{path} holds no rows: fetch it again")
    return table
