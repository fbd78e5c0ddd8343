"""EliteReplay for PyTorch Lightning.

Kept free of imports on purpose: verification workers import this package and must not pay for torch.
"""

__version__ = "0.1.0"
