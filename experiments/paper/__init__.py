"""The paper: its tables, parallel training, main claim and section 5."""
