"""Small real implementations of what lies outside: they record, delay and fail."""
