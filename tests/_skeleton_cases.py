"""Skeletons, points of their base spaces, and slow kernels of them, for the tests.

The recursion here shares nothing with the library but the activations' closed forms,
which `test_skeletons` compares with SciPy's quadrature.
"""

import numpy as np

from randkern import skeletons as sk

#: Activations by name, with the slope of their duals at 1.
ACTIVATIONS = {
    "identity": sk.Identity(),
    "hermite2": sk.Hermite2(),
    "relu": sk.ReLU(),
    "step": sk.Step(),
    "exponential": sk.Exponential(0.8),
    "erf": sk.Erf(0.9),
    "sine": sk.Sine(1.1),
    "cosine": sk.Cosine(0.7),
    "optical-1": sk.Optical(1),
    "optical-2.5": sk.Optical(2.5),
    "optical-4": sk.Optical(4),
    "series": sk.PowerSeries([0.2, 0.3, 0.0, 0.5]),
    "tanh": sk.from_function(np.tanh),
}

#: Base spaces of which a power of a feature keeps a finite variance.
BASES = {
    "circle": sk.circle,
    "binary": sk.binary,
    "gaussian": sk.gaussian(0.7),
    "gaussian-2": sk.gaussian(0.5, n=2),
    "categorical-2": sk.categorical(2),
    "categorical-3": sk.categorical(3),
    "categorical-4": sk.categorical(4),
    "linear": sk.linear,
    "sphere-pair": sk.sphere(3),
    "sphere-coordinate": sk.sphere(3, "coordinate"),
    "sphere-direction": sk.sphere(3, "direction"),
}


def points(base, n_rows, n_inputs, rng):
    """Return random rows of inputs on a base space."""
    name = repr(base)
    if name == "circle":
        return rng.uniform(-1.6, 1.6, (n_rows, n_inputs))
    if name == "binary":
        return rng.choice([-1.0, 1.0], (n_rows, n_inputs))
    if name.startswith("categorical"):
        return rng.integers(base.n, size=(n_rows, n_inputs)).astype(float)
    if name.startswith("sphere"):
        vectors = rng.normal(size=(n_rows, n_inputs, base.n))
        vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
        return vectors.reshape(n_rows, -1)
    if name == "linear":
        return rng.uniform(-1, 1, (n_rows, n_inputs))
    return rng.normal(size=(n_rows, n_inputs * base.width))


def base_kernel(base, x, y):
    """Return the kernel of two points of a base space, from its definition."""
    name = repr(base)
    if name == "circle":
        return np.cos(x[0]) * np.cos(y[0]) + np.sin(x[0]) * np.sin(y[0])
    if name.startswith("categorical"):
        return float(x[0] == y[0])
    if name.startswith("gaussian"):
        return np.exp(-(base.scale**2) * np.sum((x - y) ** 2) / 2)
    return float(np.dot(x, y))


def slow_kernel(skeleton, x, y, duals=None):
    """Return the kernel of two rows by recursion from the output, node by node."""
    nodes = skeleton.nodes
    entering = {}
    for start, end in skeleton.edges:
        entering.setdefault(end, []).append(start)
    known = {}

    def value(name):
        if name not in known:
            node = nodes[name]
            if isinstance(node, sk.Input):
                columns = list(node.columns)
                known[name] = base_kernel(node.base, x[columns], y[columns])
            else:
                mean = sum(value(u) for u in entering[name]) / len(entering[name])
                known[name] = float(np.asarray(node.dual(np.array([mean])))[0])
        return known[name]

    (output,) = {name for name in nodes} - {start for start, _ in skeleton.edges}
    return value(output)


def shapes(activation, base):
    """Return a shallow, a deep and a convolutional skeleton of 9 inputs."""
    return {
        "shallow": sk.fully_connected(9, 1, activation, base),
        "deep": sk.fully_connected(9, 2, activation, base),
        "convolutional": sk.convolutional(
            (3, 3, base.width),
            [sk.Conv(2), sk.Dense()],
            activation,
            base,
        ),
    }
