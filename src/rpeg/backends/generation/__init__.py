"""Generation: the protocol, and its backends by name, one file each."""
