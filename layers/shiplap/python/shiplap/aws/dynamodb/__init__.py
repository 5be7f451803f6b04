"""The stores on DynamoDB: tables `state` and `capacity`."""
