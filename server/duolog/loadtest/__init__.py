"""A caller with its own clock: places real calls over the socket and measures them."""
