"""Python imports this module when it starts in a task of plx. It makes Python write the
stacks of all threads into a file on signal 58, for "plx stacks" and for jobs that hang, and
on signal 57 while foreign code keeps Python's lock.
Then it makes way for the sitecustomize of the user or the system."""


def _prepare(asked, urged):
    import _signal  # without the names of package signal, which take some ms to load
    import _thread
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    try:
        import faulthandler
        import fcntl

        # A signal ends a sleep or a poll, and foreign code may take that for an error, as
        # torch does. So two threads take the signals that do nothing else, and all others
        # block them, as they do what the first thread blocks before they begin.
        for number in asked, urged:
            _signal.signal(number, _signal.SIG_IGN)  # what it is again while Python ends
        _signal.pthread_sigmask(_signal.SIG_BLOCK, {asked, urged})
        fd = os.open(os.environ["PLX_PYTHON_STACKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:  # a high number, which a program that counts its descriptors does not meet
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 512)
        finally:
            os.close(fd)
        faulthandler.register(urged, file=high, all_threads=True, chain=False)
        never = _thread.allocate_lock()
        never.acquire()

        # Stacks must not change while they are read. This thread has Python's lock then.
        def _write_for_plx(sigwait=_signal.sigwait, write=faulthandler.dump_traceback):
            while True:
                sigwait({asked})
                write(high, True)

        # This one reads them without the lock: plx asks it only if the other one has waited
        # so long that the holder of the lock must be in foreign code.
        def _wait_for_plx(ready):
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {urged})
            ready.release()
            while True:
                never.acquire()

        def begin():
            try:
                ready = _thread.allocate_lock()
                ready.acquire()
                _thread.start_new_thread(_write_for_plx, ())
                _thread.start_new_thread(_wait_for_plx, (ready,))
                ready.acquire(True, 1)  # else the first foreign code may keep the lock from it
            except Exception:  # no more threads may be had; plx then shows the kernel's view
                pass

        begin()
        os.register_at_fork(after_in_child=begin)
    except Exception:  # plx then shows the kernel's view
        pass


_prepare(58, 57)
del _prepare

import sys

_own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError as e:
    if e.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _own  # there is no other
