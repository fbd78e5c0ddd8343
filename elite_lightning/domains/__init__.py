"""Verifiable domains: one file or folder each, none of which knows torch or Lightning.

Importing this package imports no domain, so that a worker process loads only the one that it needs.
"""
