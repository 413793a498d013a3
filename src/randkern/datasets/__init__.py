"""Loaders of bundled data sets and of tables, as arrays ready for the models.

`load_dataset` takes a name or a table file and returns a `Dataset`; `read_table` reads
a table alone. Other packages register loaders of their own under a name, by entry
points of the group ``randkern.datasets``: functions of a folder that return a
`Dataset`.
No content of a data file is ever executed. Damaged, truncated or mislabelled
files raise `randkern.exceptions.DataFileError`, which names the file, what was
expected, what was found, and what to try.
"""

from randkern.data.table_format import TableFormat
from randkern.datasets.record import Dataset
from randkern.datasets.registry import DATASET_NAMES, load_dataset
from randkern.datasets.tables import read_table

__all__ = [
    "DATASET_NAMES",
    "Dataset",
    "TableFormat",
    "load_dataset",
    "read_table",
]
