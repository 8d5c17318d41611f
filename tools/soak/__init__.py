"""What nplm holds of memory, open files, threads and disk while it trains and answers visitors."""
