"""The commands, one file each, named like the command; the signature and docstring give the options."""
