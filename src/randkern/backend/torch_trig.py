"""Features from projections, for tensors.

If a gradient is needed, nothing is written in place except the final copy to the
output, which PyTorch can differentiate.
"""

import torch


def is_tracked(*tensors):
    """Return whether a gradient may be computed with respect to one of the tensors."""
    return torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in tensors
    )


def _write(function, phase, factor, out):
    """Write factor·function(phase)."""
    if is_tracked(phase, out) or getattr(factor, "requires_grad", False):
        out[...] = function(phase) * factor
        return
    function(phase, out=out)
    out *= factor


def cos_sin_pairs(phase, weight, out, amplitude=None):
    """Write weighted cosines and sines of phases, interleaved, to (n, 2m)."""
    factor = weight if amplitude is None else weight * amplitude
    _write(torch.cos, phase, factor, out[:, ::2])
    _write(torch.sin, phase, factor, out[:, 1::2])


def cosines(phase, offsets, weight, out, amplitude=None):
    """Write weighted cosines of shifted phases."""
    factor = weight if amplitude is None else weight * amplitude
    _write(torch.cos, phase + offsets, factor, out)


def modulus_in_place(real, imag, power):
    """Return (real² + imag²)^(power/2)."""
    square = real * real + imag * imag
    if power == 2:
        return square
    if power == 4:
        return square * square
    if is_tracked(square):
        # The derivative of a root is infinite at 0, and times 0 gives nan.
        positive = square > 0
        powers = torch.where(positive, square, 1.0) ** (power / 2)
        return torch.where(positive, powers, 0.0)
    if power == 1:
        return torch.sqrt(square)
    return square * torch.sqrt(square) if power == 3 else square ** (power / 2)


def modulus_power(real, imag, power, weight, out):
    """Write weight·(real² + imag²)^(power/2)."""
    out[...] = modulus_in_place(real, imag, power) * weight
