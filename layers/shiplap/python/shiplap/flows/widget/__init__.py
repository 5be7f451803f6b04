"""The widget of the CloudWatch dashboard."""
