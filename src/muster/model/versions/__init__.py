"""The version types, one per rule of comparison. Never PEP 440 or semver; does not know which versions exist."""

from muster.model.versions.base import Version, VersionSyntaxError
from muster.model.versions.cuda import CudaVersion
from muster.model.versions.deb import DebVersion
from muster.model.versions.driver import DriverVersion
from muster.model.versions.kernel import KernelVersion
from muster.model.versions.rpm import RpmVersion
from muster.model.versions.vbios import VbiosVersion

__all__ = [
    "CudaVersion",
    "DebVersion",
    "DriverVersion",
    "KernelVersion",
    "RpmVersion",
    "VbiosVersion",
    "Version",
    "VersionSyntaxError",
]
