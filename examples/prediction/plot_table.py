"""
A table: predictions, intervals, importances
============================================

``TabularRegressor`` takes a dataframe as it comes and learns the scaling, the kernel, a
lengthscale for each column, and the penalty, by leave-one-out errors in closed form.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.inspection import PartialDependenceDisplay
from sklearn.model_selection import train_test_split

import randkern as rk

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X["sex"] = X["sex"].map({1.0: "one", 2.0: "two"}).astype("category")
X_train, X_test, y_train, y_test = train_test_split(
    X, y.to_numpy(), test_size=0.3, random_state=0
)
model = rk.TabularRegressor(time_limit=10, random_state=0).fit(X_train, y_train)
print(f"R² = {model.score(X_test, y_test):.2f}")
print(model.leaderboard_.head())

# %%
# Intervals
# ---------
# CV+ needs fits without each of 20 parts of the rows, which ridge regression has in
# closed form.
low, high = model.predict_interval(X_test, coverage=0.8).T
order = np.argsort(model.predict(X_test))
at = np.arange(len(order))
inside = ((low <= y_test) & (y_test <= high)).mean()
plt.figure(figsize=(8, 3.5), layout="constrained")
plt.fill_between(at, low[order], high[order], alpha=0.25, label="80 % interval")
plt.plot(at, model.predict(X_test)[order], label="prediction")
plt.plot(at, y_test[order], ".", color="tab:orange", label="truth")
plt.title(f"{inside:.0%} of rows that were held out lie in their interval")
plt.xlabel("patients, by prediction")
plt.ylabel("progression of the disease")
plt.legend()
plt.show()

# %%
# What it looks at
# ----------------
shares = model.feature_importances_
order = np.argsort(shares)
plt.figure(figsize=(6, 3.2), layout="constrained")
plt.barh(X.columns[order], 100 * shares[order])
plt.title("Importances: total-effect indices")
plt.xlabel("share in the variance of predictions (%)")
plt.show()

# %%
best = [int(j) for j in order[::-1] if X.columns[j] != "sex"][:3]
figure, panels = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
PartialDependenceDisplay.from_estimator(
    model, X_train, best, ax=panels, kind="both", subsample=30, random_state=0
)
figure.suptitle("Dependence on the three most important numbers")
plt.show()

# %%
# The model as a pipeline of public classes
# -----------------------------------------
print(model.model_.to_estimator())
