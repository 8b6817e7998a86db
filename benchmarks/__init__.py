"""What fedtext costs, measured: ``python -m benchmarks`` (all), or one of the modules by itself."""
