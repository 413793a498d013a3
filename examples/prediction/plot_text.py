"""
Text: kernels of character n-grams, by landmarks
================================================

Which part of SciPy does a function belong to, judging by its documentation? A text
becomes a sparse row of thousands of weighted character n-grams: a string kernel is a
kernel of such rows. Random features would need a matrix as wide; landmarks only need
inner products of rows, whatever the kernel.
"""

import inspect
import re
from importlib import import_module

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import train_test_split

import randkern as rk

# %%
# The texts
# ---------
# Installed docstrings, without examples and without module names, which would give the
# answer away.
MODULES = (
    "fft integrate interpolate linalg ndimage optimize signal sparse spatial special"
)
MODULES = [*MODULES.split(), "stats"]
NAMES = re.compile(rf"\b(scipy|{'|'.join(MODULES)})\b")


def documents():
    seen = set()
    for label, name in enumerate(MODULES):
        module = import_module(f"scipy.{name}")
        for member in sorted(getattr(module, "__all__", dir(module))):
            text = inspect.getdoc(getattr(module, member, None)) or ""
            text = NAMES.sub(" ", text.partition("\nExamples\n")[0])[:1_000]
            if len(text) > 300 and text not in seen:
                seen.add(text)
                yield text, label


texts, y = zip(*documents(), strict=True)
y = np.array(y)
X = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), min_df=3)
X = X.fit_transform(texts)
print(
    f"{X.shape[0]:,} texts, {X.shape[1]:,} n-grams, {X.nnz / X.shape[0]:.0f} in a text"
)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.3, random_state=0, stratify=y
)

# %%
# Landmarks, fewer and more
# -------------------------
# Rows have norm 1, so kernels of their inner products are functions of one angle.
kernels = {
    "Gaussian": rk.Gaussian(1.0),
    "linear": rk.Linear(),
}
sizes = [25, 50, 100, 200, 400]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
for number, (name, kernel) in enumerate(kernels.items()):
    errors = []
    for D in (*sizes, None):
        model = rk.KernelRidgeClassifier(
            kernel, 0.1, n_components=D, features="nystrom", random_state=0
        ).fit(X_train, y_train)
        errors.append(100 * (1 - model.score(X_test, y_test)))
    left.plot(sizes, errors[:-1], "o-", color=f"C{number}", label=name)
    left.axhline(errors[-1], color=f"C{number}", linestyle=":")
left.set(xscale="log", xlabel="landmarks", ylabel="test error (%)")
left.set(title="Dotted: the exact kernel")
left.set_xticks(sizes, sizes)
left.minorticks_off()
left.legend()
ConfusionMatrixDisplay.from_predictions(
    *(y_test, model.predict(X_test)),
    display_labels=MODULES,
    normalize=None,
    xticks_rotation=90,
    cmap="Blues",
    colorbar=False,
    ax=right,
)
right.set(title=f"{name}, exact: {100 - errors[-1]:.0f} % right", xlabel="predicted")
right.set_ylabel("module of the function")
plt.show()
