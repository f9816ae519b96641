"""Notes what functions of the product are given and return, or does something before or instead of their calls."""

import inspect
from functools import partial, wraps


def calls_of(patch, owner, name):
    """The arguments, by name, of each call of a function or coroutine function from now on."""
    real, calls = getattr(owner, name), []
    signature = inspect.signature(real)

    @wraps(real)
    def noted(*arguments, **options):
        calls.append(signature.bind(*arguments, **options).arguments)
        return real(*arguments, **options)

    patch.setattr(owner, name, noted)
    return calls


def answering(patch, owner, **values):
    """Functions return these values from now on, whatever they are given."""
    for name, value in values.items():
        patch.setattr(owner, name, lambda *_, value=value: value)


def results_of(patch, owner, name):
    """What a coroutine function returns from now on."""
    real, results = getattr(owner, name), []

    @wraps(real)
    async def noted(*arguments, **options):
        results.append(await real(*arguments, **options))
        return results[-1]

    patch.setattr(owner, name, noted)
    return results


def before_calls(patch, owner, name, *deeds):
    """Does one of these deeds before each call of a function or coroutine function; returns those that are left."""
    real, left = getattr(owner, name), list(deeds)

    @wraps(real)
    def late(*arguments, **options):
        if left:
            left.pop(0)()
        return real(*arguments, **options)

    patch.setattr(owner, name, late)
    return left


def fail_first(patch, owner, name, *errors):
    """Makes a function or coroutine function raise these errors, one a call, before it works again."""

    def failing(error):
        raise error

    before_calls(patch, owner, name, *(partial(failing, error) for error in errors))
