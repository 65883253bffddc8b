"""The command line: the `wavetank` command and its shell.

`commands/` has one module per command, `shell/` is what `wavetank shell` runs. The other modules
are shared by several commands.
"""
