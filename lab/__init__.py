"""A laboratory of real machines in containers: own systemd, sshd, apt and dpkg, reboot with another boot id, power cuts. Needs root.

`scripts/lab up --nodes 1` makes it by hand; tests marked `lab` make their own. Nothing of Muster knows it: a node is reached through SSH like
any other. What is not real is said where it stands: no kernel module can be loaded in a container, so `modprobe` writes what a loaded module
would show, and `nvidia-smi` replays captures.
"""
