"""Small helpers that several rooms share; not public."""
