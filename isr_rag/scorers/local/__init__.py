"""The local backend: tokens, plans of shared computation, and networks that score them in this process."""
