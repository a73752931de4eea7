"""What is right: the reference engines. Imports nothing of the grader and reads like the handouts."""
