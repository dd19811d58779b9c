"""Loading a target and a draft, and checking that they fit each other."""
