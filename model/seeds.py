"""Random streams: one for each name, all derived from the run's seed.

A stream depends on (seed, name) alone, so another actor more or less does not change what the
others draw: two strategies are compared under the very same load.
"""

import hashlib
import random

import numpy as np


def _key(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:16], "big")


def python_stream(seed: int, name: str) -> random.Random:
    """The Python stream of this name."""
    return random.Random(_key(seed, name))


def numpy_stream(seed: int, name: str) -> np.random.Generator:
    """The NumPy stream of this name: its own, not the Python one's continuation."""
    return np.random.Generator(np.random.PCG64(_key(seed, name + "/numpy")))
