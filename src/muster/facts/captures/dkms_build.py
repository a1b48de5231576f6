"""What DKMS, make and dpkg print when a module does not build: for which module and kernel, and what dpkg is left with."""

import re
from collections.abc import Mapping

from muster.facts.captures import _dkms, _text
from muster.model.capture import CaptureSpec
from muster.model.fact import FactValue, Unknown

_NAME, _KERNEL = r"[A-Za-z0-9_.+-]{1,60}", r"[A-Za-z0-9_.+~-]{1,120}"
_MAKE_LOG = re.compile(rf"DKMS make\.log for ({_NAME}) for kernel ({_KERNEL})")
_CONSULT = re.compile(rf"Consult \S{{0,60}}/dkms/({_NAME})/({_NAME})/build/make\.log")
_BAD = re.compile(rf"Bad return status for module build on kernel: ({_KERNEL})")
_DPKG = re.compile(r"dpkg: error processing package (\S{1,120}) \(--configure\)")
_APPORT = re.compile(r"^ERROR \(dkms apport\): (.{1,200})", re.MULTILINE)
_ERROR = re.compile(r"^(?:.{0,300}?: )?error: (.{1,300})", re.MULTILINE)
_SIGNS = (_MAKE_LOG, _CONSULT, _BAD)


def sniff(head: str) -> int:
    return 92 if any(sign.search(head) for sign in _SIGNS) else 0


def parse(text: str) -> Mapping[str, FactValue]:
    """`dkms_build.module` (as DKMS writes it), `.kernel`, `.failed`, `.first_error`; a package that dpkg left half-configured; rows of
    `dkms status` where they stand beside. A line of `dkms apport` is kept apart: it is no cause.
    """
    log, consult, bad = _MAKE_LOG.search(text), _CONSULT.search(text), _BAD.search(text)
    error, apport, dpkg = _ERROR.search(text), _APPORT.search(text), _DPKG.search(text)
    found: dict[str, FactValue] = dict(_dkms.facts(text.split("\n")))
    module = log[1] if log else f"{consult[1]}/{consult[2]}" if consult else None
    kernel = log[2] if log else bad[1] if bad else None
    found["dkms_build.module"] = module or Unknown("no line names the module")
    found["dkms_build.kernel"] = kernel or Unknown("no line names the kernel")
    if bad or (log and error):
        found["dkms_build.failed"] = True
    found["dkms_build.first_error"] = error[1] if error else Unknown("the cause is not in this text; it is in make.log")
    if apport:
        found["dkms_build.apport"] = apport[1]
    if dpkg:
        found[f"package[{_text.key(dpkg[1])}].state"] = "half-configured"
    return found


READER = CaptureSpec("dkms_build", "the log of a DKMS build, or what apt prints of it", sniff, parse)
