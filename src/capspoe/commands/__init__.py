"""The commands, one function each: its arguments as a dataclass, then the call."""
