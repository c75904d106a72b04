"""Voices behind `engine.api.Synthesizer`."""
