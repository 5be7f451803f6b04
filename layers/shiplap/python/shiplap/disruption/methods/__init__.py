"""The methods of disruption, one module each: which nodes go, why, and what replaces them."""
