"""Pages in headless Chromium: scripts/test --browser."""
