"""The catalog flow: what AWS sells, and whether each EC2NodeClass can be launched from."""
