"""Files that the laboratory ships: a small sample of the Factuality Slice, and templates of reports."""
