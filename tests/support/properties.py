"""Settings of properties whose examples share a fixture of their test, which hypothesis refuses unless it is meant."""

from hypothesis import HealthCheck, settings

OWN_ROWS = settings(
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]
)
"""Examples share a database, and each makes or empties what it looks at."""
SAME_SURROUNDINGS = settings(OWN_ROWS)
"""A fixture sets what surrounds the examples, and no example changes that."""


def examples(usual, full=None):
    """Return the number of examples of a property that usually has so many: fewer if all properties have fewer.

    `full` is the number of `--full`, if it is another one.
    """
    if full is not None and settings.get_current_profile_name() == "full":
        return full
    return min(usual, max(1, usual * settings.default.max_examples // settings.get_profile("default").max_examples))
