"""Pictures of a cluster as HTML and SVG, for the dashboard's widget and the command line; pure functions."""
