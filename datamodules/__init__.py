"""DataModule and problem sources.

Kept free of imports: a domain may live here, and verification workers must not pay for torch.
"""
