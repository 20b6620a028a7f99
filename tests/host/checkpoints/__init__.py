"""Demo checkpoints, made on the spot and cached, never committed: see README.md beside this file."""
