"""Python imports this module when it starts in a task of plx. The module makes Python write
the stacks of all threads into a file, for "plx stacks" and the report of a hang. Signal 58 does
that with the GIL held. Signal 57 does it without the GIL, in case native code keeps the GIL.
At its end this module imports the sitecustomize of the user or the system, if there is one."""


def _prepare(asked, urged):
    import _signal  # instead of signal, whose import takes some milliseconds longer
    import _thread
    import os
    import sys

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    try:
        import faulthandler
        import fcntl

        # A signal interrupts a sleep or a poll, and native code such as torch may take that
        # for an error. So two threads of plx do nothing but receive the signals. All other
        # threads inherit from the main thread that it blocks these signals.
        for number in asked, urged:
            _signal.signal(number, _signal.SIG_IGN)  # also the state of the signal while Python shuts down
        _signal.pthread_sigmask(_signal.SIG_BLOCK, {asked, urged})
        fd = os.open(os.environ["PLX_PYTHON_STACKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:  # a high number, so that programs that use low descriptor numbers find them free
            high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 512)
        finally:
            os.close(fd)
        faulthandler.register(urged, file=high, all_threads=True, chain=False)
        never = _thread.allocate_lock()
        never.acquire()

        # This thread holds the GIL while it writes, so that the stacks do not change.
        def _write_for_plx(sigwait=_signal.sigwait, write=faulthandler.dump_traceback):
            while True:
                sigwait({asked})
                write(high, True)

        # In this thread the handler of faulthandler writes the stacks without the GIL. plx
        # sends its signal only if the other thread has waited for the GIL so long that native
        # code must be holding it.
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
                ready.acquire(True, 1)  # wait for its start, before native code can keep the GIL
            except Exception:  # too many threads; plx then shows only what the kernel reports
                pass

        begin()
        os.register_at_fork(after_in_child=begin)
    except Exception:  # plx then shows only what the kernel reports
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
    sys.modules["sitecustomize"] = _own  # no other sitecustomize exists
