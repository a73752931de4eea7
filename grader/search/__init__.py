"""Random traces: cases that stand for many of them, and the shortest trace that shows a mistake."""
