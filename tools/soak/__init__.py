"""Measures the memory, open files, threads and disk space of nplm while it trains and serves visitors."""
