"""Statements that writers made about passages of documents, the documents of our own, and their division."""
