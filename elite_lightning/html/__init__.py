"""The report: one self-contained HTML page, and its pictures as PNG, made from run folders alone."""
