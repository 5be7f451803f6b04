"""The port CatalogSource: what EC2 sells and at what price."""
