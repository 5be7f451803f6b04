"""The sweep: finds and repairs whatever no message reports."""
