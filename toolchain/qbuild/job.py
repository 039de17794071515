"""Job objects of Windows: a child and all that it starts end together, and never outlive qbuild.

Only :mod:`qbuild.process` and :mod:`qbuild.verify.sandbox` use them, and only on Windows. Names and
numbers are those of ``<winnt.h>`` and ``<winbase.h>`` for 64 bits.
"""

from __future__ import annotations

from typing import Any, Final

SUSPENDED_GROUP: Final = 0x00000204
"""Creation flags of a child for :func:`bind`: CREATE_NEW_PROCESS_GROUP, so that Ctrl-C is qbuild's
to handle, and CREATE_SUSPENDED, so that the child starts nothing before it is in the job."""

_KILL_ON_JOB_CLOSE: Final = 0x2000
_EXTENDED_LIMIT_INFORMATION: Final = 9  # the class of the structure below
_STRUCTURE_BYTES: Final = 144  # JOBOBJECT_EXTENDED_LIMIT_INFORMATION
_FLAGS_AT: Final = 16  # offset of BasicLimitInformation.LimitFlags
_RIGHTS: Final = 0x0901  # PROCESS_SUSPEND_RESUME | PROCESS_SET_QUOTA | PROCESS_TERMINATE


class Job:
    """A job: its processes end when it is closed.

    The system closes it when qbuild ends, by whatever means: the window's close button, the task
    manager, a crash.
    """

    def __init__(self, kernel: Any, handle: int) -> None:
        self._kernel, self._handle = kernel, handle

    def end(self) -> None:
        """End every process in it. A second call does nothing."""
        if self._handle:
            self._kernel.TerminateJobObject(self._handle, 1)
            self._kernel.CloseHandle(self._handle)
            self._handle = 0


def bind(pid: int) -> Job:
    """Put a child that was started with :data:`SUSPENDED_GROUP` into a job and let it run.

    Raises:
        OSError: Windows refuses the job; the child is ended.
    """
    import ctypes

    kernel = _kernel32()
    flags = bytearray(_STRUCTURE_BYTES)
    flags[_FLAGS_AT : _FLAGS_AT + 4] = _KILL_ON_JOB_CLOSE.to_bytes(4, "little")
    limits = ctypes.create_string_buffer(bytes(flags), _STRUCTURE_BYTES)
    job = kernel.CreateJobObjectW(None, None)
    process = kernel.OpenProcess(_RIGHTS, False, pid)
    done = (
        job
        and process
        and kernel.SetInformationJobObject(
            job, _EXTENDED_LIMIT_INFORMATION, limits, _STRUCTURE_BYTES
        )
        and kernel.AssignProcessToJobObject(job, process)
    )
    number = ctypes.get_last_error()  # type: ignore[attr-defined]
    if done:
        # The thread's handle is gone with Popen; ntdll resumes a process as a whole.
        ctypes.WinDLL("ntdll").NtResumeProcess(ctypes.c_void_p(process))  # type: ignore[attr-defined]
    elif process:
        kernel.TerminateProcess(process, 1)
    if process:
        kernel.CloseHandle(process)
    if not done:
        raise ctypes.WinError(number)  # type: ignore[attr-defined]
    return Job(kernel, job)


def _kernel32() -> Any:
    """Return kernel32 with the types of what is called: handles do not fit into an int."""
    import ctypes

    kernel: Any = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined]
    handle, number, pointer = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
    for name, result, types in (
        ("CreateJobObjectW", handle, [pointer, pointer]),
        ("OpenProcess", handle, [number, ctypes.c_int, number]),
        ("SetInformationJobObject", ctypes.c_int, [handle, ctypes.c_int, pointer, number]),
        ("AssignProcessToJobObject", ctypes.c_int, [handle, handle]),
        ("TerminateJobObject", ctypes.c_int, [handle, number]),
        ("TerminateProcess", ctypes.c_int, [handle, number]),
        ("CloseHandle", ctypes.c_int, [handle]),
    ):
        function = getattr(kernel, name)
        function.restype, function.argtypes = result, types
    return kernel
