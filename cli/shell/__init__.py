"""The shell: commands for a cluster in this process.

`commands/` defines the commands, one module per subject; command_table.py is the table they are
entered in; parser.py reads a line; session.py holds the cluster; shell.py has the loops.
"""
