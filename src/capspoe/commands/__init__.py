"""The commands, one file each, named like the command. Options come from the signature and the docstring."""
