"""The cost of training on several devices (section 3)."""
