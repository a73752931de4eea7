"""Random traces: cases that contain many traces, and the shortest trace that shows a mistake."""
