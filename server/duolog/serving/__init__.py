"""What all calls share: schedulers in front of the engines. Knows ports, never a vendor and never a call's state."""
