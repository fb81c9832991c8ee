"""What a run does, one file each: load, steps and the records that come of them."""
