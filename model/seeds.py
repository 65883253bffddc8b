"""Random streams: one for each name, all derived from the seed of the run.

A stream depends only on (seed, name). Adding or removing an actor does not change the numbers that
the others draw, so two strategies can be compared under exactly the same load.
"""

import hashlib
import random

import numpy as np


def _key(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:16], "big")


def python_stream(seed: int, name: str) -> random.Random:
    """Return the stream of a name, as Python's generator."""
    return random.Random(_key(seed, name))


def numpy_stream(seed: int, name: str) -> np.random.Generator:
    """Return the stream of a name, as NumPy's generator; independent of the Python stream."""
    return np.random.Generator(np.random.PCG64(_key(seed, name + "/numpy")))
