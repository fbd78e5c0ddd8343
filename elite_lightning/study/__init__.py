"""Studies: several arms, each over several seeds, and what can be said about them."""
