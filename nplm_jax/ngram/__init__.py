"""The paper's count-based models (section 4.1): tables of n-gram counts, and models estimated from them."""
