"""PocketSQL: the bundled text-to-SQL benchmark, made by a seeded generator."""
