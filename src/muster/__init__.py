"""Muster keeps the GPU drivers, firmware and CUDA environments of a fleet known, consistent and healthy.

The version of the distribution stands here and nowhere else.
"""

__version__ = "0.1.0.dev0"
