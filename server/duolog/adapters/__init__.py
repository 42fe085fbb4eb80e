"""One vendor each, behind a port. Built only by the composition root."""
