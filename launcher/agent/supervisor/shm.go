//go:build linux

package supervisor

import (
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// busErrorTexts are texts that shells, Python, Go and PyTorch print when a process
// was killed by SIGBUS or could not get shared memory.
var busErrorTexts = [][]byte{
	[]byte("Bus error"), []byte("bus error"), []byte("SIGBUS"),
	[]byte("insufficient shared memory"), []byte("shared memory(shm)"), []byte("shared memory limit"),
}

// shmErrorTexts are texts in system errors about files in /dev/shm. Other output
// may contain them too, so they are weaker evidence than busErrorTexts.
var shmErrorTexts = [][]byte{[]byte(protocol.Shm), []byte("</torch_"), []byte("SemLock"), []byte("shm_open")}

// lackOfShm returns a message about /dev/shm if a task seems to have failed
// for lack of shared memory, or else "". code is the task's exit status, and
// shm describes /dev/shm at the end of the task. If /dev/shm is small but not
// full, lackOfShm blames it for bus errors only.
func lackOfShm(code int, stderr *output, shm protocol.Folder) string {
	fault, text := protocol.OfShm(shm)
	if fault == protocol.ShmGood {
		return ""
	}
	if byBusError(code) || stderr.endContains(busErrorTexts) || fault != protocol.ShmSmall && stderr.endContains(shmErrorTexts) {
		return text
	}
	return ""
}

// byBusError reports whether an exit status means a death by SIGBUS. It is
// 128+SIGBUS if the process or the last command of a shell died. It is
// 256-SIGBUS if a Python program exits with the code -7 that its subprocess
// module returned.
func byBusError(code int) bool {
	return code == 128+int(unix.SIGBUS) || code == 256-int(unix.SIGBUS)
}
