"""Fails a build when a question-answering pipeline is wrong more often, or answers less, than its baseline."""
