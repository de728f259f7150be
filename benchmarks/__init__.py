"""Measurements that anybody can repeat: `python -m benchmarks SCENARIO [--server ...] [--json FILE]`."""
