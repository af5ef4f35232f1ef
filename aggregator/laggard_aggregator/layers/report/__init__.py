"""Reports of a stack: records (JSON), tables (terminal), one HTML file."""
