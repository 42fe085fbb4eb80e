"""KV pins: which replica a session's requests go to, what of its prompt is resident there, and keeping it so."""
