"""The namespace `wt.network`: how long messages take between nodes, and what can go wrong.

- Models of a cluster's network: `constant`, `uniform`, `lognormal`, or any `NetworkModel`.
- The same in a scenario: `ConstantLatency`, `UniformLatency`, `LognormalLatency`.
- What a model of one's own returns: a delay, a `Verdict`, `DROP` or `HOLD`.
- The faults of a link: `Faults`.
"""

from ..model.network import DROP, HOLD, Faults, Verdict
from ..strategies.network import NetworkModel, constant, lognormal, uniform
from .scenario import ConstantLatency, LognormalLatency, UniformLatency

__all__ = [
    "DROP",
    "HOLD",
    "ConstantLatency",
    "Faults",
    "LognormalLatency",
    "NetworkModel",
    "UniformLatency",
    "Verdict",
    "constant",
    "lognormal",
    "uniform",
]
