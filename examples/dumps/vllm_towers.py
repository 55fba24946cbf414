"""Towers for pictures and sound, which hold no cache: those that cannot be built here are left out.

vLLM marks them itself, with a context around the lines that build them: what fails in there ends the context only.
"""

import contextlib

# Why each tower of the model that is built now is left out.
LEFT_OUT = []


def optional():
    """Let models do without the towers that fail."""
    from vllm.config import get_current_vllm_config
    from vllm.model_executor.models.interfaces import SupportsMultiModal

    marked = SupportsMultiModal._mark_tower_model

    @contextlib.contextmanager
    def mark(self, vllm_config, modalities, *, targets=None):
        layers = get_current_vllm_config().compilation_config.static_forward_context
        before = set(layers)
        undo = [made_optional(kind) for kind in classes(targets)]
        try:
            with marked(self, vllm_config, modalities, targets=targets):
                yield
        except Exception as error:
            if targets:
                raise
            LEFT_OUT.append(f"{type(self).__name__}'s tower: {type(error).__name__}: {error}"[:200])
            for name in set(layers) - before:
                del layers[name]
            stand_in(self)
        finally:
            for restore in undo:
                restore()

    SupportsMultiModal._mark_tower_model = mark


def classes(targets):
    return targets if isinstance(targets, tuple) else (targets,) if targets else ()


def made_optional(kind):
    """Instances of a class become stand-ins if they cannot be built; call the answer to end that."""
    own = kind.__init__

    def init(self, *args, **more):
        try:
            own(self, *args, **more)
        except Exception as error:
            LEFT_OUT.append(f"{kind.__name__}: {type(error).__name__}: {error}"[:200])
            super(kind, self).__init__()
            stand_in(self)

    kind.__init__ = init
    return lambda: setattr(kind, "__init__", own)


def stand_in(module):
    """What a module lacks from now on is an object that takes everything."""
    import vllm_stand_ins

    kind = type(module)

    def missing(self, name):
        try:
            return kind.__getattr__(self, name)
        except AttributeError:
            if name.startswith("_"):
                raise
            return vllm_stand_ins.anything(name)

    module.__class__ = type(kind.__name__, (kind,), {"__getattr__": missing, "__module__": kind.__module__})
