"""What depends on the device of tensors: whether it is there, memory, and tiles."""

import numpy as np
import torch


def empty_on(device, dtype):
    """Return an empty tensor of a dtype of NumPy on a device, by its name."""
    dtype = getattr(torch, np.dtype(dtype).name)
    try:
        # One number, since none would be made on a device that is not there.
        return torch.zeros((1, 1), dtype=dtype, device=device)[:0, :0]
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        found = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device={device!r} cannot be used ({reason}); there are {found}."
        ) from error


def memory_limit(like):
    """Return what a fit may take on the device of `like`: half of what is free there.

    None: what the host has.
    """
    if (device := like.device).type != "cuda":
        return None
    # PyTorch keeps blocks that it has freed for later tensors.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return (int(torch.cuda.mem_get_info(device)[0]) + kept) // 2


def tile_rows(like):
    """Return the most rows of a tile of phases: of a GPU, enough for all its units."""
    return 1024 if like.device.type == "cpu" else 8192


def tile_size(like):
    """Return the memory and the most rows of a tile of exact values.

    A GPU takes large tiles: for each it starts some ten kernels a level.
    """
    if like.device.type == "cpu":
        return 32 * 2**20, 128
    return 128 * 2**20, 2048
