"""Wall seconds of `muster collect` over 50 real sshd nodes, with the start of the program and the store."""

from __future__ import annotations

from bench.collect_50 import Sampler, have_ansible
from bench.harness import Benchmark, Peer

BENCHMARK = Benchmark(
    name="collect-50",
    about="wall seconds of `muster collect` over 50 sshd nodes; at most half of ansible's with the same script",
    unit="s",
    sample=Sampler("muster", cpu=False),
    peer=Peer("ansible -m script", Sampler("ansible", cpu=False) if have_ansible() else None),
    others=(Peer("ssh true", Sampler("ssh true", cpu=False)),),
    runs=3,
)
