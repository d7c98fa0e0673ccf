//go:build linux

package supervisor

import (
	"errors"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/protocol"
)

// stderrOf returns the stderr of a task that has written the given pieces.
func stderrOf(t *testing.T, pieces ...string) *output {
	t.Helper()
	o, end, err := newOutput("worker:0 stderr", &fullDisk{}, func(string) {}, func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(end.Close(), o.pipe.Close()); err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		o.remember([]byte(p))
	}
	return o
}

func TestTextsOfShmFailures(t *testing.T) {
	long := strings.Repeat("step 3: loss 0.5\n", tailKept/17+1)
	const bus, shm = 1, 2
	for text, want := range map[string]int{
		"": 0,
		"/tmp/task: line 2:   123 Bus error               (core dumped) python3 x.py\n":                                                bus,
		"Fatal Python error: Bus error\n\nCurrent thread":                                                                              bus,
		"[signal SIGBUS: bus error code=0x2 addr=0x7f]":                                                                                bus,
		"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n" + long[:9000]: bus,
		"RuntimeError: unable to allocate shared memory(shm) for file </torch_1_2>: No space left on device (28)\n":                    bus | shm,
		"Please try to raise your shared memory limit.":                                                                                bus,
		"FileNotFoundError: in _multiprocessing.SemLock(":                                                                              shm,
		"OSError: [Errno 28] No space left on device: '/dev/shm/a'\n":                                                                  shm,
		"the previous error\n": 0,
		"triton: out of resource: shared memory, Required: 147456": 0,
		long + "Bus error\n": bus,
		"Bus error\n" + long: 0,
		"Bus error\n" + long + "subprocess: died with <Signals.SIGBUS: 7>": bus,
	} {
		for _, o := range []*output{stderrOf(t, text), stderrOf(t, strings.SplitAfter(text, "s")...)} {
			if o.endContains(busErrorTexts) != (want&bus != 0) || o.endContains(shmErrorTexts) != (want&shm != 0) {
				t.Errorf("%.60q: %v, %v, want %d", text, o.endContains(busErrorTexts), o.endContains(shmErrorTexts), want)
			}
			if len(o.tail) > 2*tailKept {
				t.Errorf("%d bytes are kept", len(o.tail))
			}
		}
	}
}

// The state of /dev/shm explains only failures that look like a lack of shared
// memory.
func TestLackOfShm(t *testing.T) {
	const mib = 1 << 10
	small := protocol.Folder{Path: protocol.Shm, SizeKiB: 8 * mib, FreeKiB: 8 * mib}
	full := protocol.Folder{Path: protocol.Shm, SizeKiB: 8 * mib}
	good := protocol.Folder{Path: protocol.Shm, SizeKiB: 4096 * mib, FreeKiB: 4096 * mib}
	const isSmall, isFull = "/dev/shm is small (8 MiB, 8 MiB left)", "/dev/shm is full (8 MiB, 0 left)"
	for _, c := range []struct {
		code   int
		stderr string
		shm    protocol.Folder
		want   string
	}{
		{135, "", full, isFull},
		{135, "", small, isSmall},
		{135, "", good, ""},
		{249, "", full, isFull}, // -7
		{1, "", full, ""},
		{1, "RuntimeError: DataLoader worker (pid 17) is killed by signal: Bus error.", small, isSmall},
		{1, "OSError: [Errno 28] No space left on device: '/dev/shm/a'", full, isFull},
		{1, "NCCL INFO /dev/shm/nccl-1", small, ""},
		{135, "", protocol.Folder{}, ""}, // nobody has looked
	} {
		if got := lackOfShm(c.code, stderrOf(t, c.stderr), c.shm); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
