"""pytest shows cases and labelled submissions as items of its own."""
