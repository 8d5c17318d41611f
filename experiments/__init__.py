"""One folder a study."""
