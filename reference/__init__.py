"""The reference engines, which say what is right. They import nothing of the grader and read like the handouts."""
