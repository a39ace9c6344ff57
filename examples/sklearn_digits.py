"""The RBM example of scikit-learn's gallery, with capsules added: shifted digits, features for logistic regression.

The data, the split and the first two pipelines are those of "Restricted Boltzmann Machine features for digit
classification", except for its tol=1, with which scikit-learn 1.9 stops at once.
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


def with_shifts(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The images, and each of them shifted by one pixel up, left, right and down."""
    kernels = np.zeros((4, 3, 3))
    kernels[[0, 1, 2, 3], [0, 1, 1, 2], [1, 0, 2, 1]] = 1
    moved = [[convolve(row.reshape(8, 8), k, mode="constant").ravel() for row in X] for k in kernels]
    return np.concatenate([X, *moved]), np.concatenate([y] * 5)


X, y = load_digits(return_X_y=True)
X, y = with_shifts(X[:200] if QUICK else X, y[:200] if QUICK else y)
X = minmax_scale(X, feature_range=(0, 1))
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=0)

quick = {"n_iter": 1, "config": {"min_steps": 40, "autoencoder_epochs": 1}} if QUICK else {}
rbm = BernoulliRBM(n_components=100, learning_rate=0.06, n_iter=2 if QUICK else 10, random_state=0)
probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=3000))
weak_penalty = make_pipeline(StandardScaler(), LogisticRegression(C=10, max_iter=300))
like_rbm = CapsulePoE(neurons="binary", gate="none", learning_rate=0.03, **quick)
models = {
    "pixels + logistic regression": LogisticRegression(C=100, max_iter=3000),
    "BernoulliRBM + logistic regression": make_pipeline(rbm, LogisticRegression(C=6000, max_iter=3000)),
    "binary capsules, no gate + logistic regression": make_pipeline(like_rbm, weak_penalty),
    "capsules on the features + logistic regression": make_pipeline(CapsulePoE(**quick), probe),
    "capsules on the images + logistic regression": make_pipeline(CapsulePoE(image_shape=(8, 8), **quick), probe),
}
for name, model in models.items():
    start = time.perf_counter()
    accuracy = model.fit(X_train, y_train).score(X_test, y_test)
    print(f"{name:48} {accuracy:.3f}   {time.perf_counter() - start:.0f} s")

on = models["capsules on the images + logistic regression"][0].predict(X_test)
purity = sum(np.bincount(y_test[on == j]).max() for j in np.unique(on)) / len(y_test)
print(f"without any label: {purity:.1%} of the test images have the most common label of their capsule")
