"""The figures Muster claims, each as a benchmark anyone can run; see `bench/run`."""
