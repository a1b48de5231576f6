"""One file per benchmark, each with a `BENCHMARK`; a new file is found by itself."""
