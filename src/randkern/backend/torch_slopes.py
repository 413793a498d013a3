"""Functions of one number whose slopes PyTorch cannot derive, or only as inf · 0."""

import torch


class _WithSlope(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, function, slope, *others):
        return function(x, *others)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, _, ctx.slope, *others = inputs
        ctx.save_for_backward(x, *others)
        ctx.save_for_forward(x, *others)

    @staticmethod
    def backward(ctx, gradient):
        others = len(ctx.saved_tensors) - 1
        slope = gradient * ctx.slope(*ctx.saved_tensors)
        return slope, None, None, *[None] * others

    @staticmethod
    def jvp(ctx, tangent, *_):
        return tangent * ctx.slope(*ctx.saved_tensors)


def with_slope(x, function, slope, *others):
    """Return function(x, ...), whose derivative is slope(x, ...), entry by entry.

    The slope is differentiable in turn, if further derivatives are needed. `others` are
    tensors that are constants: they only make the values more precise.
    """
    return _WithSlope.apply(x, function, slope, *(other.detach() for other in others))


def where_positive(values, function):
    """Return a function of positive values; 0, with slope 0, where they are not."""
    positive = values > 0
    return torch.where(positive, function(torch.where(positive, values, 1.0)), 0.0)


def bessel_k0(x):
    """Return the modified Bessel function K₀, of which PyTorch has no derivative."""
    return with_slope(x, torch.special.modified_bessel_k0, lambda x: -_bessel_k1(x))


def _bessel_k1(x):
    def slope(x):
        return -bessel_k0(x) - _bessel_k1(x) / x

    return with_slope(x, torch.special.modified_bessel_k1, slope)
