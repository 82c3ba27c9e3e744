"""The Factuality Slice: its schema, and the builder that makes it from raw files (Appendix H)."""
