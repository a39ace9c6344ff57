"""Each kind of neuron against its definition: P(h | z) proportional to exp(z h - E_0(h))."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from capspoe.model.neurons import NEURONS
from capspoe.model.noise import Noise

F64 = torch.float64
Z = torch.tensor([-4.0, -0.7, 0.0, 0.3, 2.5], dtype=F64)


def moments(neurons, z):
    """log of the sum of exp(z h - E_0(h)), the mean and the variance of h; by a sum or an integral over h."""

    def density(h):
        return np.exp(z * h - float(neurons.energy(torch.tensor(h, dtype=F64))))

    if neurons.name == "binary":
        powers = [density(0.0) * (n == 0) + density(1.0) for n in range(3)]
    else:
        powers = [quad(lambda h, n=n: h**n * density(h), -30, 30, points=[z])[0] for n in range(3)]
    mean = powers[1] / powers[0]
    return np.log(powers[0]), mean, powers[2] / powers[0] - mean**2


@pytest.mark.parametrize("neurons", NEURONS.values(), ids=NEURONS)
def test_closed_forms(neurons):
    log_partition, mean, variance = np.array([moments(neurons, z) for z in Z.tolist()]).T
    difference = log_partition - neurons.log_partition(Z).numpy()
    np.testing.assert_allclose(difference, difference[0], atol=1e-9)  # A(z) leaves out a constant
    np.testing.assert_allclose(neurons.mean(Z), mean, atol=1e-9)
    h = neurons.sample(neurons.mean(Z).expand(40000, 5), Noise.for_batch(40000, dtype=F64), 0).numpy()
    np.testing.assert_allclose(h.mean(0), mean, atol=0.02)
    np.testing.assert_allclose(h.var(0), variance, atol=0.03)
    assert (set(np.unique(h)) == {0.0, 1.0}) == (neurons.name == "binary")
