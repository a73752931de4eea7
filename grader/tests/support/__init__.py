"""Code that several tests share: small programs, samples that are graded once, readers of reports, decoys."""
