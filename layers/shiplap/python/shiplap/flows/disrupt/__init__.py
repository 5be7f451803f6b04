"""The disrupt flow: commands to remove and replace nodes, a step each minute."""
