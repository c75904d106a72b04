"""Faults on purpose, while people talk: who is told, who notices, what recovers. `python -m tests.chaos`; docs/operations.md, *Chaos*."""
