"""The paper's experiments on any scorer and any slice: what is scored, what follows from it, and the report."""
