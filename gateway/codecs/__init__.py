"""Wire formats to and from `gateway.events`, without I/O."""
