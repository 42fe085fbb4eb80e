"""One call: listening, answering, speaking. Knows nothing of sockets or wire messages."""
