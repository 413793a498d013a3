"""Rows as a stream of blocks, from whatever holds them."""

from randkern.blocks.devices import DeviceRows
from randkern.blocks.ranges import row_blocks, rows_within
from randkern.blocks.rows import RowBlock, RowBlocks

__all__ = ["DeviceRows", "RowBlock", "RowBlocks", "row_blocks", "rows_within"]
