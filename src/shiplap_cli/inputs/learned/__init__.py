"""Learned capacity in files: what `shiplap capacity export` and `import` exchange."""
