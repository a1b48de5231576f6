"""CPU seconds of the control side: `muster collect` over 50 real sshd nodes, with the start of the program and the store."""

from __future__ import annotations

from bench.collect_50 import Sampler, have_ansible
from bench.harness import Benchmark, Peer

BENCHMARK = Benchmark(
    name="collect-50-cpu",
    about="CPU seconds of the control side: `muster collect` over 50 sshd nodes; at most a tenth of ansible's with the same script",
    unit="s",
    sample=Sampler("muster", cpu=True),
    peer=Peer("ansible -m script", Sampler("ansible", cpu=True) if have_ansible() else None),
    others=(Peer("ssh true", Sampler("ssh true", cpu=True)),),
    runs=3,
)
