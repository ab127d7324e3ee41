"""A test is not wrong because the machine is busy: no deadline for single examples."""

from hypothesis import settings

settings.register_profile("anabranch", deadline=None)
settings.load_profile("anabranch")
