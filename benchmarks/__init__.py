"""Time and memory of fedtext: ``python -m benchmarks`` (all), or one of the modules by itself."""
