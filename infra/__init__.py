"""The CDK app: one stack, one construct per concern."""
