"""Searches beyond the cases: random traces, smallest traces that show a mistake, small engines, mutants, repairs."""
