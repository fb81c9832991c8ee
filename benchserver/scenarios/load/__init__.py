"""A load: requests as engines make them, from many clients at once, every hit proven."""
