"""The namespace `wt.load`: how many records arrive, what they are like, how long work takes.

- When records arrive: `Constant`, `Poisson`, `Bursts`, `Daily`, `trace`.
- What they are like: `NoKeys`, `OneKey`, `UniformKeys`, `ZipfKeys`; `FixedSize`, `LognormalSizes`.
- What a running producer sends: `Load`.
- How long a consumer works on them: `ConstantService`, `ExponentialService`, `LognormalService`.
"""

from .arrivals import Bursts, Constant, Daily, Poisson, trace
from .workload import (
    ConstantService,
    ExponentialService,
    FixedSize,
    Load,
    LognormalService,
    LognormalSizes,
    NoKeys,
    OneKey,
    UniformKeys,
    ZipfKeys,
)

__all__ = [
    "Bursts",
    "Constant",
    "ConstantService",
    "Daily",
    "ExponentialService",
    "FixedSize",
    "Load",
    "LognormalService",
    "LognormalSizes",
    "NoKeys",
    "OneKey",
    "Poisson",
    "UniformKeys",
    "ZipfKeys",
    "trace",
]
