"""The faults, by what they befall."""
