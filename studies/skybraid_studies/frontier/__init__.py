"""Timely delivery without full duplication: missed share against overhead over simultaneously measured paths."""
