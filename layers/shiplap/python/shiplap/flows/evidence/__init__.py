"""What flows note down about spot for the decisions of later."""
