//go:build linux

package jobfolder

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// prepared returns a Python interpreter and a job's Stacks whose
// sitecustomize.py was written.
func prepared(t *testing.T) (python string, f Stacks) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	f = StacksOf(Folder(t.TempDir()))
	if err := f.Prepare(); err != nil {
		t.Fatal(err)
	}
	return python, f
}

// sitecustomize.py changes nothing that a program can see, and also runs the
// user's own sitecustomize.
func TestPython(t *testing.T) {
	python, f := prepared(t)
	users, broken := t.TempDir(), t.TempDir()
	for dir, text := range map[string]string{users: "print('users own')\n", broken: "import nowhere\n"} {
		if err := os.WriteFile(filepath.Join(dir, "sitecustomize.py"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stacks := f.PythonFile(cluster.Chief, 0)
	const program = `import os, sys, time
print(sys.argv[1] in sys.path, flush=True)
os.kill(os.getpid(), 58)
end = time.time() + 60
while os.path.exists(sys.argv[2]) and 'in <module>' not in open(sys.argv[2]).read() and time.time() < end: time.sleep(0.01)`
	run := func(path, file string) (out string, written bool) {
		t.Helper()
		if err := os.RemoveAll(stacks); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(python, "-c", program, f.Python(), file)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+f.Python()+path, "PLX_PYTHON_STACKS="+file)
		text, _ := cmd.CombinedOutput() // the signal kills a Python process without sitecustomize.py
		content, err := os.ReadFile(stacks)
		return string(text), err == nil && strings.Contains(string(content), "in <module>")
	}
	if out, written := run("", stacks); out != "False\n" || !written {
		t.Errorf("%q, stacks %t", out, written)
	}
	if out, written := run(":"+users, stacks); out != "users own\nFalse\n" || !written {
		t.Errorf("with the user's own: %q, stacks %t", out, written)
	}
	if out, written := run(":"+broken, stacks); !strings.Contains(out, "nowhere") || !strings.HasSuffix(out, "False\n") || !written {
		t.Errorf("with a broken one of the user's: %q, stacks %t", out, written)
	}
	if out, _ := run("", "/nowhere/file"); out != "False\n" {
		t.Errorf("without a file for stacks: %q", out)
	}
}

// foreign is a Python program that sleeps and polls in native code: in the
// main thread, another thread and a child. It prints which calls were
// interrupted.
const foreign = `
import ctypes, errno, fcntl, os, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
libc.poll.argtypes = [ctypes.c_void_p, ctypes.c_ulong, ctypes.c_int]
time = (ctypes.c_long * 2)(0, 300_000_000)  # a timespec
busy = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(busy, fcntl.LOCK_EX)

def locked():  # another descriptor waits for the lock
    threading.Timer(0.3, fcntl.flock, (busy, fcntl.LOCK_UN)).start()
    other = os.open(sys.argv[1], os.O_RDWR)
    return libc.flock(other, fcntl.LOCK_EX)

def calls(where):
    for name, call in {
        "nanosleep": lambda: libc.nanosleep(time, None),
        "usleep": lambda: libc.usleep(300_000),
        "poll": lambda: libc.poll(None, 0, 300),
        "select": lambda: libc.select(0, None, None, None, (ctypes.c_long * 2)(0, 300_000)),
    }.items():
        if call() != 0:
            print(where, name, errno.errorcode[ctypes.get_errno()])

calls("first thread")
if locked() != 0:
    print("flock", errno.errorcode[ctypes.get_errno()])
other = threading.Thread(target=calls, args=("another thread",))
other.start()
other.join()
child = os.fork()
if child == 0:
    print("child", os.getpid(), flush=True)
    calls("child")
    os._exit(0)
os.waitpid(child, 0)
print("end")
`

// The signal for stacks interrupts no system call of a Python process: not in
// its main thread, another thread or a child.
func TestPythonStacksInterruptNoSystemCall(t *testing.T) {
	python, f := prepared(t)
	stacks := f.PythonFile(cluster.Chief, 0)
	cmd := exec.Command(python, "-c", foreign, filepath.Join(t.TempDir(), "lock"))
	cmd.Env = append(os.Environ(), "PYTHONPATH="+f.Python(), "PLX_PYTHON_STACKS="+stacks)
	var out strings.Builder
	printed, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	looked := make(chan int)
	var child atomic.Int64
	ended := make(chan struct{})
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-ended:
				looked <- n
				return
			case <-time.After(10 * time.Millisecond):
			}
			if _, err := os.Stat(stacks); err == nil {
				syscall.Kill(cmd.Process.Pid, 58)
			}
			if pid := int(child.Load()); pid > 0 {
				syscall.Kill(pid, 58)
			}
		}
	}()
	for lines := bufio.NewScanner(printed); lines.Scan(); {
		if pid, found := strings.CutPrefix(lines.Text(), "child "); found {
			n, _ := strconv.Atoi(pid) // the program prints one
			child.Store(int64(n))
			continue
		}
		out.WriteString(lines.Text() + "\n")
	}
	err = cmd.Wait()
	close(ended)
	if n := <-looked; err != nil || out.String() != "end\n" || n < 50 {
		t.Errorf("looked at %d times: %v, printed\n%s", n, err, out.String())
	}
	dumps, err := os.ReadFile(stacks)
	if n := strings.Count(string(dumps), " in _wait_for_plx"); err != nil || n < 50 || !strings.Contains(string(dumps), " in calls\n") {
		t.Errorf("%d dumps, %v", n, err)
	}
}
