"""One module for each command; `doctor` and `top` have folders of their own."""
