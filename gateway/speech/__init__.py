"""From model text to segments that are fit to be spoken; everything here is pure."""
