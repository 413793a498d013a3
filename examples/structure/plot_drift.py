"""
Drift monitoring by two-sample tests
====================================

Do today's rows have the distribution of those that a model was fitted to, or have they
drifted? Each day's rows are compared with a reference by :func:`randkern.mmd_test`, in
time linear in the number of rows. No column changes its mean or variance here: two
columns become correlated.
"""

import matplotlib.pyplot as plt
import numpy as np

import randkern as rk

n_columns, n_rows, n_days, change = 4, 1_000, 20, 12
rng = np.random.default_rng(0)
reference = rng.normal(size=(10_000, n_columns))


def rows_of(day):
    """Return a day's rows; from the 12th on the first two columns are correlated."""
    rows = rng.normal(size=(n_rows, n_columns))
    correlation = 0.1 * max(day - change + 1, 0)
    rows[:, 1] *= np.sqrt(1 - correlation**2)
    rows[:, 1] += correlation * rows[:, 0]
    return rows


# %%
# One test per day
# ----------------
# The kernel is the same every day: the lengthscale is that of the reference.
kernel = rk.Gaussian("median").resolve(reference)
days = [rows_of(day) for day in range(n_days)]
results = [
    rk.mmd_test(
        reference,
        rows,
        kernel,
        n_components=300,
        random_state=day,
        n_permutations=1_000,
    )
    for day, rows in enumerate(days)
]
p = np.array([result.pvalue for result in results])

# %%
# A test per day raises false alarms on 5 % of the days. Dividing the level by the
# number of days (Bonferroni) bounds the probability of any.
alarm = 0.05 / n_days
alarms = np.flatnonzero(p <= alarm)
print(f"alarms on days {alarms.tolist()}; the rows change from day {change} on")

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
axes.semilogy(p, "o-", label="p-value")
axes.axhline(alarm, color="tab:red", linewidth=1, label=f"alarm: p ≤ {alarm:g}")
axes.axvspan(change, n_days - 0.5, color="0.92", zorder=0, label="correlated columns")
axes.set_title("Tests of each day's rows against the reference")
axes.set_xlabel("day")
axes.set_xticks(range(0, n_days, 2))
axes.legend()
plt.show()

# %%
# What has changed?
# -----------------
# The witness function is negative where the day has more rows than the reference. On
# the last day it has more of them where both columns are large, or both are small.
witness = results[-1].witness(days[-1])
most = np.argsort(witness)[:200]
figure, axes = plt.subplots(figsize=(4.6, 4.4), layout="constrained")
axes.plot(*days[-1][:, :2].T, ".", color="0.8", markersize=3, label="the last day")
axes.plot(*days[-1][most, :2].T, ".", markersize=4, label="200 least witness values")
axes.set_title("Rows that the reference has fewer of")
axes.set_xlabel("column 0")
axes.set_ylabel("column 1")
axes.legend(loc="lower right")
plt.show()
