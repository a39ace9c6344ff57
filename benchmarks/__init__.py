"""What makes the numbers, tables and pictures in the documentation. README.md is the index.

Run every script as a module from the root of the repository: `python -m benchmarks.speed.kernels`.
"""
