"""What several tests use: small programs, samples that are graded once, readers of reports, decoys."""
