"""The operations in plain torch: the CPU's, and in float64 the reference of all others."""
