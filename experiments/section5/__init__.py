"""The paper's section 5: what it leaves to future work."""
