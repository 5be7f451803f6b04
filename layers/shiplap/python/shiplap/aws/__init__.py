"""Layer 4: the AWS adapters behind the ports; they translate and decide nothing."""
