"""`mooncake://`: a Mooncake store, whose library runs in a process of its own."""
