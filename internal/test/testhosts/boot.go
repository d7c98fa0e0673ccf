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

// boot is one run of a host, from power on to power off.
type boot struct {
	cmd   *exec.Cmd // process 1 of the host
	home  string    // root's home, as seen from inside the host
	mount HomeMount // present state of the home
	table *table
	ended chan struct{} // closed when all processes of the host are gone
}

// boot starts process 1 of a host. It waits until the caller has closed commands:
// lines of ip(8) that set up its end of the link.
func (w *warden) boot(d *disk, home string) (b *boot, commands *os.File, err error) {
	if err := d.newBootID(); err != nil {
		return nil, nil, err
	}
	log, err := os.OpenFile(d.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close() // the host has its own copy
	linked, commands, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer linked.Close() // the host has its own copy

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

// pid is process 1 as seen from outside.
func (b *boot) pid() int { return b.cmd.Process.Pid }

// HomeMount is a state of a host's home.
type HomeMount int

// A NormalHome can be written. A ReadOnlyHome cannot. A FullHome is an empty
// file system of its own with room for 64 KiB.
const (
	NormalHome HomeMount = iota
	ReadOnlyHome
	FullHome
)

// mountHome is [Host.MountHome] of a host with power.
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

// inMounts runs a program of the machine in the host's mount namespace.
func (b *boot) inMounts(args ...string) error {
	return tool("", "nsenter", append([]string{"--mount", "--pid", "--target", strconv.Itoa(b.pid()), "--"}, args...)...)
}

// reap ends with process 1, which kill waits for.
func (b *boot) reap() {
	_ = b.cmd.Wait() // a killed sshd's status says nothing
	close(b.ended)
}

// kill ends process 1, with which the kernel ends all others of the host, and
// waits [patience.Limit] at most.
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

// awaitListener looks into the kernel's table: to connect would cost a process
// of sshd and one of its few unauthenticated connections.
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

// warden is the thread that starts all hosts of a cluster. The kernel kills
// them when that thread ends: at the latest with the process, however it ends.
type warden struct {
	work chan func()
	done chan struct{}
}

func newWarden() *warden {
	w := &warden{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		runtime.LockOSThread() // never unlocked: the thread is to end here
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
