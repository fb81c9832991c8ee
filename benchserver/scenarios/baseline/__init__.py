"""The baseline: every sequence once cold, once warm, every byte proven."""
