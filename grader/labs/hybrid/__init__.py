"""The hybrid assignment: one memory for layers of different kinds."""
