"""Everything goes wrong at once, and nothing may be lost: hosts, a scheduler and a server under random faults.

`app.py` runs in the worker processes and writes down what it did, `faults.py` breaks things, `checker.py` judges,
`soak.py` puts them together: `python -m tests.chaos.soak --seconds 60 --seed 7`.
"""
