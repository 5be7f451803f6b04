"""Pictures of a cluster as HTML and SVG: pure functions from plain data to text, for the command line and a Lambda."""
