package testhosts

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

//go:embed boot.sh
var bootScript string

// boot is one run of a test host, from power on to power off.
type boot struct {
	cmd   *exec.Cmd // process 1 of the host, a shell script that executes sshd
	home  string    // path of root's home directory inside the host
	mount HomeMount // how the home directory is mounted now
	table *table
	ended chan struct{} // closed when all processes of the host have ended
}

// boot starts process 1 of a host. The process then reads ip(8) commands,
// which set up the host's end of its network link. The caller writes the
// commands to the returned file and closes the file.
func (w *warden) boot(d *disk, home string) (b *boot, commands *os.File, err error) {
	if err := d.newBootID(); err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(d.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close() // the host's processes have a duplicate of the file, so an error of Close does not matter
	linked, commands, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer linked.Close() // the host's processes have a duplicate of the file, so an error of Close does not matter

	cmd := exec.Command("sh", "-c", bootScript, "boot", d.name, d.path(""), home, stateDir, sshd)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = linked, log, log
	cmd.SysProcAttr = newNamespaces()
	if err := w.start(cmd); err != nil {
		return nil, nil, errors.Join(err, commands.Close())
	}
	b = &boot{cmd: cmd, home: home, table: newTable(cmd.Process.Pid), ended: make(chan struct{})}
	go b.reap()
	return b, commands, nil
}

// pid is the process ID that the host's process 1 has on the test's machine,
// outside the host.
func (b *boot) pid() int { return b.cmd.Process.Pid }

// HomeMount is the way in which a host's home directory is mounted.
type HomeMount int

// A NormalHome is writable, a ReadOnlyHome is not. A FullHome is an empty,
// separate file system with 64 KiB of space.
const (
	NormalHome HomeMount = iota
	ReadOnlyHome
	FullHome
)

// mountHome implements [Host.MountHome] for a host that is running.
func (b *boot) mountHome(m HomeMount) error {
	if m == b.mount {
		return nil
	}
	var err error
	switch b.mount {
	case ReadOnlyHome:
		err = b.inMounts("mount", "-o", "remount,bind,rw", b.home)
	case FullHome:
		err = b.inMounts("umount", "--lazy", b.home)
	}
	if err != nil {
		return err
	}
	b.mount = NormalHome
	switch m {
	case ReadOnlyHome:
		err = b.inMounts("mount", "-o", "remount,bind,ro", b.home)
	case FullHome:
		err = b.inMounts("mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", b.home)
	}
	if err == nil {
		b.mount = m
	}
	return err
}

// inMounts runs a program of the test's machine in the host's mount namespace.
func (b *boot) inMounts(args ...string) error {
	return tool("", "nsenter", append([]string{"--mount", "--pid", "--target", strconv.Itoa(b.pid()), "--"}, args...)...)
}

// reap waits for the end of process 1 and then closes b.ended.
func (b *boot) reap() {
	_ = b.cmd.Wait() // the exit status of a killed sshd means nothing
	close(b.ended)
}

// kill kills process 1, whereupon the kernel kills all other processes of the
// host. It waits until all of them have ended, at most [patience.Limit].
func (b *boot) kill() error {
	if err := b.cmd.Process.Kill(); err != nil && err != os.ErrProcessDone {
		return err
	}
	select {
	case <-b.ended:
		return nil
	case <-time.After(patience.Limit):
		return fmt.Errorf("process 1 (%d outside) is still there %v after it was killed", b.pid(), patience.Limit)
	}
}

// awaitListener waits until sshd listens on a port. It reads the kernel's
// table of sockets instead of connecting, because sshd allows only a few
// connections that do not log in.
func (b *boot) awaitListener(port int) error {
	table := fmt.Sprintf("/proc/%d/net/tcp", b.pid())
	listener := fmt.Sprintf(" 00000000:%04X 00000000:0000 0A ", port)
	for deadline := time.Now().Add(patience.Limit); time.Now().Before(deadline); {
		if text, err := os.ReadFile(table); err == nil && strings.Contains(string(text), listener) {
			return nil
		}
		select {
		case <-b.ended:
			return fmt.Errorf("it ended before sshd listened")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("sshd does not listen after %v", patience.Limit)
}

// warden is the OS thread that starts all hosts of a cluster. The kernel kills
// the hosts when this thread ends, and so also when the process dies.
type warden struct {
	work chan func()
	done chan struct{}
}

func newWarden() *warden {
	w := &warden{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		runtime.LockOSThread() // the goroutine never unlocks the thread, so the thread ends with the goroutine
		for f := range w.work {
			f()
		}
	}()
	return w
}

func (w *warden) start(cmd *exec.Cmd) error {
	result := make(chan error)
	w.work <- func() { result <- cmd.Start() }
	return <-result
}

func (w *warden) close() {
	close(w.work)
	<-w.done
}
