"""What grading costs, measured beside what else one could do. `scripts/bench` runs it; start reading at command.py."""
