"""The commands of `wavetank`, one per module; main.py adds every module here to the command."""
