"""L2 tiers: stores behind the arena, each behind the one interface in `tier`."""
