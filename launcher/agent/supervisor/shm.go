//go:build linux

package supervisor

import (
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// busSigns are what shells, Python, Go and PyTorch print of a process that SIGBUS has ended or
// that got no shared memory.
var busSigns = [][]byte{
	[]byte("Bus error"), []byte("bus error"), []byte("SIGBUS"),
	[]byte("insufficient shared memory"), []byte("shared memory(shm)"), []byte("shared memory limit"),
}

// shmSigns are in errors of the system about files in /dev/shm, and perhaps in other lines.
var shmSigns = [][]byte{[]byte(protocol.Shm), []byte("</torch_"), []byte("SemLock"), []byte("shm_open")}

// lackOfShm returns what is wrong with /dev/shm, if a task that has ended with code looks as if
// it had lacked shared memory; "": it does not. A small /dev/shm is the cause of bus errors only.
func lackOfShm(code int, stderr *output, shm protocol.Folder) string {
	fault, text := protocol.OfShm(shm)
	if fault == protocol.ShmGood {
		return ""
	}
	if byBusError(code) || stderr.says(busSigns) || fault != protocol.ShmSmall && stderr.says(shmSigns) {
		return text
	}
	return ""
}

// byBusError reports whether an exit status is that of a process which SIGBUS has ended, of a
// shell whose last command it has ended, or of a program of Python that passes on what
// subprocess has returned, -7.
func byBusError(code int) bool {
	return code == 128+int(unix.SIGBUS) || code == 256-int(unix.SIGBUS)
}
