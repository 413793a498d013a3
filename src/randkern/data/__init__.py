"""Rows from anywhere, a block at a time or in shards, as training data."""

from randkern.data.blocks import RowBlock, RowBlocks, as_blocks
from randkern.data.devices import DeviceBlocks
from randkern.data.training_data import row_blocks, rows_within

__all__ = [
    "DeviceBlocks",
    "RowBlock",
    "RowBlocks",
    "as_blocks",
    "row_blocks",
    "rows_within",
]
