"""Training data beyond the Factuality Slice: many public sets and contrastive pairs as items of one schema.

`build.build_mix` reads the sets from a folder and writes `train.jsonl`, `val.jsonl` and `unseen.jsonl`;
`curriculum.build_curriculum` adds short pairs, twins and look-alike questions, and everything to judge them by.
"""
