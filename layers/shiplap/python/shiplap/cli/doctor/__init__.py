"""`shiplap doctor`: looks at a deployment from the outside in and says how to mend what is wrong."""
