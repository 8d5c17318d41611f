"""What people do with a trained model: each package stands alone on the core, which imports none of them."""
