"""The commands, one file each, named like the command: its arguments as a dataclass, then the call."""
