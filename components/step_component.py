"""Makes a KFP component of a step. The step's settings supply its parameters, defaults and descriptions.

KFP ships the source of a component's function to the pod, and reads the component's interface from its signature and
docstring. Both are generated here: one parameter for each key in the settings' `EXPOSED`, and `settings` for the
others as JSON. `model.units` becomes the parameter `model__units`.
"""

import functools
import importlib
import inspect
import linecache
import os
import signal
import sys
import typing
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kfp import dsl

from voxline.families.family import find_family
from voxline.garbage import collect_rarely
from voxline.notify.settings import NOTIFY_ENV
from voxline.progress import neutralize_output
from voxline.settings import Settings, exposed_keys

_STEPS: dict[str, tuple[Callable[..., str | None], type[Settings], str]] = {}
"""`module:function` or `module:function:family` → the function, its settings, and the section that they come from."""


def step_component(image: str, *, section: str, family: str = "") -> Callable[[Callable[..., str | None]], Any]:
    """Decorates a step's function: its parameter `settings` is replaced by one for each exposed key, and the rest.

    The module must start with `from __future__ import annotations`: annotations are copied as they are written.

    Args:
      image: the container image that the step runs in.
      section: the section of a config that holds the step's settings.
      family: whose settings these are; empty: the step has the same ones for every family.
    """

    def decorate(step: Callable[..., str | None]) -> Any:
        # A pod imports the step's module, which registers the step here, and then calls `execute` with the target.
        settings = typing.get_type_hints(step)["settings"]
        target = ":".join(filter(None, (step.__module__, step.__name__, family)))
        _STEPS[target] = (step, settings, section)
        if not hasattr(dsl, "component"):  # in a pod kfp has no compiler, and `execute` looks the step up
            return step
        return dsl.component(base_image=image, install_kfp_package=False)(_generate(step, settings, section, target))

    return decorate


@functools.cache
def family_component(step: Callable[..., str | None], family: str, image: str, section: str = "") -> Any:
    """The component of a step for one family: the step's function, with the family's settings and sentences.

    Args:
      step: the function that all families share, named as the step; its module starts with
        `from __future__ import annotations`, and has a function `<step>_component(family)` that calls this one.
      family: the family's name.
      image: the container image that the step runs in.
      section: of the config, with the step's settings; empty: that of the step's name.
    """
    section = section or step.__name__
    model_family = find_family(family)
    texts = model_family.step_texts.get(step.__name__, {})

    # A function of its own, since its docstring and annotations are rewritten; the families share the original.
    @functools.wraps(step)
    def family_step(*arguments: Any, **named: Any) -> str | None:
        return step(*arguments, **named)

    # "" is the family's first line; the other keys are arguments in the section Args.
    first, *lines = (inspect.getdoc(step) or "").splitlines()
    for index, line in enumerate(lines):
        name = line.strip().partition(":")[0]
        if name in texts:
            lines[index] = f"  {name}: {texts[name]}"

    family_step.__doc__ = "\n".join([texts.get("", first), *lines])
    family_step.__annotations__ = {**step.__annotations__, "settings": getattr(model_family, f"{section}_settings")}
    return step_component(image, section=section, family=family)(family_step)


def execute(target: str, arguments: dict[str, Any]) -> str | None:
    """Runs a step with the arguments of its KFP component; the generated function calls this in the pod.

    Returns:
      The output parameter of a step that has one.
    """
    from voxline.store.files import use_private_umask
    from voxline.store.permanent_failures import fail_fast, restart_transient

    # As the command does at its start: a pod has no command.
    collect_rarely()
    neutralize_output()
    use_private_umask()

    module, name, *family = target.split(":")
    imported = importlib.import_module(module)
    # The component of a family exists once it was made, as the compiler made it.
    if family:
        getattr(imported, f"{name}_component")(*family)
    step, settings, section = _STEPS[target]

    # KFP passes each exposed key as a parameter of its own, and all others in one JSON text.
    named = {key.parameter: arguments.pop(key.parameter) for key in exposed_keys(settings)}
    step_settings = settings.of(arguments.pop("settings"), section, **named)
    with fail_fast(arguments["store"]), _notified(step.__name__, arguments):
        try:
            return restart_transient(lambda: step(**arguments, settings=step_settings))
        except KeyboardInterrupt as interrupt:  # a training that was stopped has said so, without a traceback
            sys.exit(128 + (interrupt.args[0] if interrupt.args else signal.SIGINT))


def _notified(step: str, arguments: dict[str, Any]) -> AbstractContextManager[None]:
    """Lets the last step of a run on a cluster send its outcome, if the config names a receiver."""
    if not os.environ.get(NOTIFY_ENV):
        return nullcontext()
    from voxline.components.on_cluster import notified_step

    return notified_step(step, arguments["store"], arguments)


def _generate(
    step: Callable[..., str | None], settings: type[Settings], section: str, target: str
) -> Callable[..., str | None]:
    """The function that KFP sees, with its source where `inspect.getsource` finds it."""
    keys = exposed_keys(settings)
    required = []
    optional = []
    for parameter in inspect.signature(step).parameters.values():
        if parameter.name == "settings":
            continue
        text = f"{parameter.name}: {parameter.annotation}"
        if parameter.default is inspect.Parameter.empty:
            required.append(text)
        else:
            optional.append(f"{text} = {parameter.default!r}")

    # Python wants parameters without a default first; `settings` is last, as the one for all other keys.
    optional += [f"{key.parameter}: {key.type.__name__} = {key.default!r}" for key in keys]
    returned = inspect.signature(step).return_annotation

    # KFP ships this text to the pod and runs it alone: `locals()` are its parameters, and `execute` does the work.
    lines = [
        f"def {step.__name__}(",
        *(f"    {text}," for text in [*required, *optional, "settings: str = '{}'"]),
        f") -> {returned}:",
        "    arguments = dict(locals())",
        "    from voxline.components.step_component import execute",
        "",
        f"    {'return ' * (returned != 'None')}execute({target!r}, arguments)",
        "",
    ]
    source = "\n".join(lines)

    # `inspect.getsource` reads a file by `linecache`, where a file that exists in memory alone may be entered.
    file = f"<component {target}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"dsl": dsl, "__name__": step.__module__}
    exec(compile(source, file, "exec"), namespace)  # noqa: S102 - the text above
    generated: Callable[..., str | None] = namespace[step.__name__]

    # KFP reads the descriptions of parameters from the section Args, with which the docstring of a step ends.
    keys_in_json = "other keys" if keys else "keys"
    described = [*((key.parameter, key.description) for key in keys)]
    described.append(("settings", f"the {keys_in_json} of the config's section `{section}`, as JSON"))
    generated.__doc__ = "\n".join(
        [inspect.getdoc(step) or "", *(f"  {name}: {sentence}." for name, sentence in described)]
    )
    return generated
