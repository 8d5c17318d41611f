"""Models that adapt to the words they have read; each predicts a word before it sees it."""
