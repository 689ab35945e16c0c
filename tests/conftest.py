"""No example of a property fails because the machine is busy: hypothesis' own deadlines are off for all tests."""

from hypothesis import HealthCheck, settings

settings.register_profile("foldlog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("foldlog")
