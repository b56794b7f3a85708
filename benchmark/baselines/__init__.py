"""What the maps are compared with, written apart from gp_mapping: each has update(x, y) and predict(x).

x (N, D) m.  y (N, 1) T.  predict gives a Prediction in SI, whatever the motion; inside, values are µT.
"""

from benchmark.baselines.gpytorch_models import ExactGP, OnlineConditioning, StoredSVGP
from benchmark.baselines.local_gps import LocalGPs
from benchmark.baselines.osgpr import OSGPR
from benchmark.baselines.osvgp import OSVGP

__all__ = ["OSGPR", "OSVGP", "ExactGP", "LocalGPs", "OnlineConditioning", "StoredSVGP"]
