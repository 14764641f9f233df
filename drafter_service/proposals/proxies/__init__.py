"""The causal proxies that DiffuSpec's path search was published with: off by default, kept to
reproduce the paper.
"""
