"""Training of the embedded model pair: corpus, tokenizer, target, drafter, path-search proxy,
evaluation.
"""
