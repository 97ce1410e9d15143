"""In time without sending everything twice: share missed against overhead over paired measurements."""
