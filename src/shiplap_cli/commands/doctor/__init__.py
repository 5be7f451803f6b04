"""`shiplap doctor`: checks a deployment from the outside and says how to fix each problem."""
