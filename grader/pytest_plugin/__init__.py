"""A pytest plugin that shows cases and labelled submissions as test items."""
