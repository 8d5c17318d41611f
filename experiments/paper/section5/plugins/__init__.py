"""The bodies, output layer and optimizer for section 5, which configs name by import path."""
