"""Engines on a real Ray Serve. `make ray` runs these; Ray has an environment of its own (`requirements/ray.txt`)."""
