"""Training and scoring on a machine that has a GPU for a few minutes, and neither the data nor the package's model.

Everything that a processor can do is done before: batches are drawn and tokenised (`drawn`), the base model is cut out
of its GGUF file (`base`), and what scoring a set asks the model is recorded (`asked`). There remain `train` and
`asked.score`, which need torch, transformers and peft alone. See `lab/docs/elsewhere.md`.
"""
