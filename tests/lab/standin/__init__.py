"""A payload that starts in a tenth of a second: what tests serve when the engine is not the point.

It has the shape of the real one (engine, slots, markers, flags from the environment) and no torch.
"""
