"""Pages for people: one self-contained HTML file, made out of JSON documents alone."""
