"""Memory, open files, threads and disk space of nplm while it trains and answers visitors."""
