"""One stage for any scenario: contact, workers, audit, clean end, verdict."""
