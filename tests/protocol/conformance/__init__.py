"""The real clients, pinned and unmodified, against a gateway with scripted engines."""
