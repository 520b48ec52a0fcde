"""Generators: of images (DFRD and its relatives), of features from noise (FedKF, DHF) or from labels (FedGen, FedMD-CG,
FedCG)."""

from trainables.generators.image import MERGE_OPS as MERGE_OPS
from trainables.generators.image import Generator as Generator
