"""Claims and templates: what is known about each, what keeps it from being used, and the mirrors made for them."""
