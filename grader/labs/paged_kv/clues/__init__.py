"""The mistakes of Homework 3: what each looks like, which rule it breaks, and the hint for it. Start at table.py."""
