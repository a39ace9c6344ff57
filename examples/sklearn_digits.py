"""Scikit-learn's RBM example with capsules beside it: digits, nudged by a pixel, features for logistic regression.

The data, its split and the first two pipelines are those of "Restricted Boltzmann Machine features for digit
classification" in scikit-learn's gallery, but for tol=1 there, with which scikit-learn 1.9 stops before it begins.
Run: python examples/sklearn_digits.py [--quick]
"""

import sys
import time

import numpy as np
from scipy.ndimage import convolve
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, minmax_scale

from capspoe.sklearn import CapsulePoE

QUICK = "--quick" in sys.argv
MOST = 3000  # iterations of logistic regression


def nudged(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The images, and each of them one pixel up, left, right and down."""
    shifts = np.zeros((4, 3, 3))
    shifts[[0, 1, 2, 3], [0, 1, 1, 2], [1, 0, 2, 1]] = 1
    moved = [[convolve(row.reshape(8, 8), shift, mode="constant").ravel() for row in X] for shift in shifts]
    return np.concatenate([X, *moved]), np.concatenate([y] * 5)


X, y = load_digits(return_X_y=True)
X, y = nudged(X[:200] if QUICK else X, y[:200] if QUICK else y)
X = minmax_scale(X, feature_range=(0, 1))
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)

steps = {"least_steps": 40, "epochs": 1, "autoencoder_epochs": 1} if QUICK else {}
rbm = BernoulliRBM(n_components=100, learning_rate=0.06, n_iter=2 if QUICK else 10, random_state=0)
logistic = LogisticRegression(C=6000, max_iter=MOST)
probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=MOST))
weaker = make_pipeline(
    StandardScaler(), LogisticRegression(C=10, max_iter=300)
)  # regularised less, as the RBM's
as_rbm = {"neurons": "binary", "gate": "none", "lr": 0.03}  # all on, and sigmoids, which an RBM has too
models = {
    "pixels + logistic regression": LogisticRegression(C=100, max_iter=MOST),
    "BernoulliRBM + logistic regression": make_pipeline(rbm, logistic),
    "binary capsules, no gate + logistic regression": make_pipeline(CapsulePoE(**as_rbm, **steps), weaker),
    "capsules on the features + logistic regression": make_pipeline(CapsulePoE(**steps), probe),
    "capsules on the images + logistic regression": make_pipeline(CapsulePoE((8, 8), **steps), probe),
}
for name, model in models.items():
    began = time.perf_counter()
    accuracy = model.fit(X_train, y_train).score(X_test, y_test)
    print(f"{name:48} {accuracy:.3f}   {time.perf_counter() - began:.0f} s")

capsules = models["capsules on the images + logistic regression"][0]
on, found = capsules.predict(X_test), {}
for j in np.unique(on):
    found[j] = (np.bincount(y_test[on == j]).max(), (on == j).sum())
purity = sum(most for most, _ in found.values()) / len(y_test)
print(f"without any label: {100 * purity:.1f} % of the images bear the commonest label of their capsule")
