"""The conversation: protocol, sessions, turns, speech text, pacing."""
