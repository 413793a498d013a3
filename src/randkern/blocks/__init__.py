"""Rows as a stream of blocks, from whatever holds them."""

from randkern.blocks.devices import DeviceBlocks, DeviceRows
from randkern.blocks.ranges import row_blocks, rows_within
from randkern.blocks.rows import RowBlock, RowBlocks, as_blocks

__all__ = [
    "DeviceBlocks",
    "DeviceRows",
    "RowBlock",
    "RowBlocks",
    "as_blocks",
    "row_blocks",
    "rows_within",
]
