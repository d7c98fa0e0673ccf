//go:build long

package e2e

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// mapper maps a file in /dev/shm and writes the given number of MiB to it, as
// PyTorch's data loaders do.
const mapper = `import mmap, os, sys
size = int(sys.argv[1]) << 20
file = os.open("/dev/shm/batch", os.O_RDWR | os.O_CREAT, 0o600)
if sys.argv[2:] == ["unlink"]:
    os.unlink("/dev/shm/batch")
os.ftruncate(file, size)
memory = mmap.mmap(file, size)
for at in range(0, size, 4096):
    memory[at] = 1
`

// TestReportA5 has hosts whose /dev/shm is small, full of another user's
// files, missing, or read-only. plx doctor must warn. If a bus error ends a
// job, the verdict must name the cause.
func TestReportA5(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 5})
	const mount = "umount /dev/shm; mount -t tmpfs -o mode=1777"
	inside(t, b.Hosts[0], mount+",size=8m tmpfs /dev/shm")
	inside(t, b.Hosts[1], mount+",size=16m tmpfs /dev/shm; head -c 20M /dev/zero >/dev/shm/other || true; chmod 600 /dev/shm/other")
	inside(t, b.Hosts[2], "umount /dev/shm; mount -t tmpfs -o mode=755 tmpfs /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; mknod -m 666 /dev/urandom c 1 9; mknod -m 666 /dev/random c 1 8; ln -s /proc/self/fd /dev/fd")
	inside(t, b.Hosts[3], "mount -o remount,ro /dev/shm")
	const use = ", and data loaders of PyTorch and NCCL share memory there; remedy: "
	b.finds(b.want(0, "doctor", "--hosts", b.ResourceFile()), [][]string{
		{"warning: host h1: /dev/shm is small (8 MiB, 8 MiB left)" + use, "mount -o remount,size=8G /dev/shm", "--shm-size=8g", "--ipc=host"},
		{"warning: host h2: /dev/shm is full (16 MiB, 0 left)" + use, "remove files"},
		{"warning: host h3: /dev/shm is not there" + use, "mount -t tmpfs"},
		{"warning: host h4: /dev/shm cannot be written: read-only file system" + use, "remount,rw"},
		{"5 hosts: 4 warnings; nothing found on 1"},
		{"between hosts: "},
	})
	if t.Failed() {
		return
	}
	for _, c := range []struct {
		name, host, script string
		code               int
		says               []string
	}{
		{"a file that is removed", "h1", `exec /usr/bin/python3 mapper.py 64 unlink`, 135, []string{"worker:0 on h1 was ended by signal 7 (bus error): /dev/shm is small (8 MiB, 8 MiB left)\n"}},
		{"the task itself", "h1", `exec /usr/bin/python3 mapper.py 64`, 135, []string{"worker:0 on h1 was ended by signal 7 (bus error): /dev/shm is full (8 MiB, 0 left)\n", "hint: plx exec --host h1 -- sh -c 'df -h /dev/shm; "}},
		{"a child of the task", "h1", `/usr/bin/python3 mapper.py 9; exit $?`, 135, []string{"worker:0 on h1 exited with status 135: /dev/shm is full (8 MiB, 0 left)"}},
		{"a child, and a parent that fails by itself", "h1", `exec /usr/bin/python3 -c 'import subprocess; subprocess.run(["/usr/bin/python3", "mapper.py", "9"], check=True)'`, 1,
			[]string{"worker:0 on h1 exited with status 1: /dev/shm is full (8 MiB, 0 left)"}},
		{"files of another", "h2", `exec /usr/bin/python3 mapper.py 1`, 135, []string{"worker:0 on h2 was ended by signal 7 (bus error): /dev/shm is full (16 MiB, 0 left)\n"}},
		{"missing", "h3", `exec /usr/bin/python3 -c 'import multiprocessing; multiprocessing.Lock()'`, 1, []string{"worker:0 on h3 exited with status 1: /dev/shm is not there"}},
		{"another cause", "h5", `kill -7 $$`, 135, []string{"worker:0 on h5 was ended by signal 7 (bus error)\n", "hint: memory that was mapped from a file "}},
		{"another failure", "h1", `exit 3`, 3, []string{"worker:0 on h1 exited with status 3\n"}},
	} {
		dir := t.TempDir()
		put(t, dir+"/mapper.py", mapper, 0o600)
		res := b.want(c.code, "launch", "--host", c.host, "--workdir", dir, "sh", "-c", c.script)
		for _, says := range c.says {
			if !strings.Contains(res.stderr, says) {
				t.Errorf("%s: no %q in\n%s", c.name, says, res.stderr)
			}
		}
	}
	b.hostsGone(0)
}
