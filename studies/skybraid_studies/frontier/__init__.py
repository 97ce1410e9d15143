"""In time without duplicating everything: share missed against overhead over paired measurements."""
