"""Answer `import courier` with stand-ins, so that Launchpad and Acme import on TensorFlow 2.15.

Where Launchpad is missing, say how it is installed.

Launchpad's wheel carries Courier as C++ built for TensorFlow 2.8; loading it with TensorFlow 2.15
dies with an undefined symbol. apex_agents makes no remote calls through Courier (Reverb is its
only server), but `import launchpad` imports it always. The .pth file beside this module imports it
at the start of every Python process of the environment, so it must stay as cheap as it is.
"""

import sys

_MESSAGE = (
    "apex_agents does not use Courier, and the Courier in Launchpad's wheel does not load with this"
    " TensorFlow; use reverb.Client, lp.ReverbNode and lp.PyNode instead."
)
_MISSING = """Launchpad is not installed. Its last wheel is for Python 3.10, where
`pip install dm-launchpad==0.5.0` is enough; on Python 3.11 it serves under another tag:

  pip download --no-deps --only-binary=:all: --python-version 3.10 dm-launchpad==0.5.0
  pip install wheel && wheel tags --python-tag cp311 --abi-tag cp311 dm_launchpad-0.5.0-cp310-*.whl
  pip install dm_launchpad-0.5.0-cp311-*.whl"""


def _refuse(*args, **kwargs):
    raise RuntimeError(_MESSAGE)


class _CourierFinder:
    """Finder and loader of `courier` and of every module below it."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        """Return a spec for Courier's modules and None for all others."""
        if name.partition(".")[0] != "courier":
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, cls, origin=__file__, is_package=True)

    @staticmethod
    def create_module(spec):
        """Return None: an ordinary empty module will do."""

    @staticmethod
    def exec_module(module):
        """Give the top module the three public names of Courier, none of which can be used."""
        if module.__name__ == "courier":
            for name in ("Client", "Server"):
                setattr(module, name, type(name, (), {"__new__": _refuse, "__module__": "courier"}))
            module.list_methods = _refuse


class _MissingLaunchpadFinder:
    """Finder that is asked last, when there is no Launchpad."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Raise an error that says how to install Launchpad; return None for all else."""
        if name != "launchpad":
            return None
        raise ModuleNotFoundError(_MISSING, name=name)


sys.meta_path.insert(0, _CourierFinder)
sys.meta_path.append(_MissingLaunchpadFinder)
