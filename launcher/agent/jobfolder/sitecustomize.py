"""Python imports this module when it starts in a task of plx. It makes Python write the
stacks of all threads into a file on signal 58, for "plx stacks" and for jobs that hang.
Then it makes way for the sitecustomize of the user or the system."""


def _prepare():
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    try:
        import faulthandler
        import fcntl

        fd = os.open(os.environ["PLX_PYTHON_STACKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:  # a high number, which a program that counts its descriptors does not meet
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 512)
        finally:
            os.close(fd)
        faulthandler.register(58, file=high, all_threads=True, chain=False)
    except Exception:  # plx then shows the kernel's view
        pass


_prepare()
del _prepare

import sys

_own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError as e:
    if e.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _own  # there is no other
