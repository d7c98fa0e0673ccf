package testhosts

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

//go:embed boot.sh
var bootScript string

// boot is one run of a host, from power on to power off.
type boot struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when process 1 is gone, and all others with it
}

// startBoot starts process 1, gives it its link and waits until sshd listens.
func startBoot(h *Host) (*boot, error) {
	if err := h.newBootID(); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(h.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the host has its own copy
	linked, commands, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer linked.Close()   // likewise
	defer commands.Close() // the host has its own copy

	cmd := exec.Command("sh", "-c", bootScript, "boot", h.Name, h.path(""), h.cluster.root, stateDir, sshd)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = linked, log, log
	cmd.SysProcAttr = newNamespaces()
	if err := h.cluster.warden.start(cmd); err != nil {
		return nil, err
	}
	b := &boot{cmd: cmd, ended: make(chan struct{})}
	go b.reap()
	if err := h.connect(b, commands); err != nil {
		return nil, fmt.Errorf("%w (%v)", err, b.kill())
	}
	return b, nil
}

// connect makes the link, tells the host to set up its end, and waits for sshd.
func (h *Host) connect(b *boot, commands *os.File) error {
	pid := b.cmd.Process.Pid
	if err := recordPid(h.cluster.net.pidFile(), pid); err != nil {
		return err
	}
	n := h.cluster.net
	outside := fmt.Sprintf("link add %[1]s type veth peer name eth0 address %[2]s netns %[3]d\n"+
		"link set %[1]s master %[4]s up\n", h.link(), n.mac(h.number), pid, n.bridge())
	if err := tool(outside, "ip", "-batch", "-"); err != nil {
		return err
	}
	inside := fmt.Sprintf("link set lo up\naddr add %s/24 dev eth0\n", h.Addr)
	if h.Addr6 != "" {
		inside += fmt.Sprintf("addr add %s/64 dev eth0 nodad\n", h.Addr6)
	}
	if _, err := commands.WriteString(inside + "link set eth0 up\n"); err != nil {
		return fmt.Errorf("set up eth0: %w", err)
	}
	if err := commands.Close(); err != nil {
		return err
	}
	return b.awaitListener(h.Port, 30*time.Second)
}

// reap ends with process 1, which kill waits for.
func (b *boot) reap() {
	_ = b.cmd.Wait() // a killed sshd's status says nothing
	close(b.ended)
}

// kill ends process 1, with which the kernel ends all others of the host, and
// waits ten seconds at most.
func (b *boot) kill() error {
	if err := b.cmd.Process.Kill(); err != nil && err != os.ErrProcessDone {
		return err
	}
	select {
	case <-b.ended:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("process 1 (%d outside) is still there 10 s after it was killed", b.cmd.Process.Pid)
	}
}

// awaitListener looks into the kernel's table: to connect would cost a process
// of sshd and one of its few unauthenticated connections.
func (b *boot) awaitListener(port int, limit time.Duration) error {
	table := fmt.Sprintf("/proc/%d/net/tcp", b.cmd.Process.Pid)
	listener := fmt.Sprintf(" 00000000:%04X 00000000:0000 0A ", port)
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if text, err := os.ReadFile(table); err == nil && strings.Contains(string(text), listener) {
			return nil
		}
		select {
		case <-b.ended:
			return fmt.Errorf("it ended before sshd listened")
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("sshd does not listen after %v", limit)
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
