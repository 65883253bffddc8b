"""Runs the `wavetank` command as `python -m wavetank.cli`."""

from .main import main

if __name__ == "__main__":
    main()
