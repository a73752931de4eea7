"""The mistakes of Homework 3: what each looks like, which rule it breaks, what to tell. Start at table.py."""
