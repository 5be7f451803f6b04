"""Tables for terminals and self-contained HTML pages."""
