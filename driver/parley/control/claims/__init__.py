"""Claims and templates: facts about each, checks of whether it can be used, and the mirrors made for them."""
