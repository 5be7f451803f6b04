"""The project's own stack, deployed on an AWS emulator in child processes."""
