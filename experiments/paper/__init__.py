"""The paper: its tables, its parallel training, its argument and its last section."""
