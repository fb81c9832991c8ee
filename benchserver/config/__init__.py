"""What a run is asked for: its target, its engine, and what its scenario is asked; validated
before any IO."""
