"""Everything that runs a model. Never imports `gateway`."""
