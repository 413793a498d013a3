r"""
Forecasting a chaotic time series with an optical reservoir
===========================================================

A reservoir computer is a large random network that is driven by a time series and never
trained. :math:`r_{t+1} = |W r_t + U x_t|` is one pass of light through a scattering
medium that receives the last state and the new value. Only a ridge regression from the
state to the next value is learned.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import randkern as rk

# %%
# The series of Mackey and Glass
# ------------------------------


def mackey_glass(n, delay=17, step=0.1, every=10):
    lag = int(delay / step)
    x = np.full(n * every + lag, 1.2)
    for t in range(lag, len(x) - 1):
        past = x[t - lag]
        x[t + 1] = x[t] + step * (0.2 * past / (1 + past**10) - 0.1 * x[t])
    return x[lag::every]


series = mackey_glass(4_000)[500:]
series = (series - series.mean()) / series.std()
n_train, n_ahead = 2_500, 600

# %%
# The reservoir
# -------------
# A state has 500 numbers. The medium scatters the state, which is remembered for some
# ten steps, together with the new value and a constant. Features of degree 1 are
# moduli of complex normal projections, as a camera sees them. Moduli are closer to
# each other than the projections, so the state forgets how it began.
size, memory, drive = 500, 0.9, 1.0
medium = rk.RandomFeatures(
    rk.Optical(degree=1.0), n_components=size, projection="dense", random_state=0
).fit(np.zeros((1, size + 2)))


def step(state, value):
    return medium.transform(np.r_[memory * state, drive * value, 1.0][None])[0]


states = np.zeros((n_train, size))
for t in range(1, n_train):
    states[t] = step(states[t - 1], series[t - 1])
warm = 200
inputs = np.c_[states, series[:n_train]]
readout = make_pipeline(StandardScaler(), Ridge(1e-6))
readout.fit(inputs[warm:-1], series[warm + 1 : n_train])

# %%
# The reservoir by itself
# -----------------------
# Each prediction becomes the next input.
state, value = states[-1], series[n_train - 1]
predicted = np.empty(n_ahead)
for t in range(n_ahead):
    following = readout.predict(np.r_[state, value][None])[0]
    state, value = step(state, value), following
    predicted[t] = value
truth = series[n_train : n_train + n_ahead]
figure, axes = plt.subplots(figsize=(9, 3.5), layout="constrained")
axes.plot(np.arange(-100, 0), series[n_train - 100 : n_train], color="0.6")
axes.plot(truth, color="0.3", label="truth")
axes.plot(predicted, "--", color="tab:red", label="the reservoir by itself")
off = np.flatnonzero(np.abs(predicted - truth) > 0.5)
axes.set_title(f"within 0.5 deviations for {off[0] if len(off) else n_ahead} steps")
axes.set_xlabel("steps after the last that was seen")
axes.legend(loc="lower left")
plt.show()
