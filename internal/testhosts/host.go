package testhosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Host is one machine of a cluster. Operations without a result report their
// failure to the cluster's Reporter.
type Host struct {
	// Name is h1, h2, and so on: the host's own name, and an alias of its
	// address in the client's ssh config and in every host's /etc/hosts.
	Name string
	// Addr is its IPv4 address, and Addr6 its IPv6 address, empty where the
	// machine has no IPv6.
	Addr, Addr6 string
	// Port is where its sshd listens.
	Port int
	// HomeDir is root's home of the host, as seen from outside.
	HomeDir string

	cluster *Cluster
	number  int

	mu    sync.Mutex // held for a whole operation on the machine
	boot  *boot      // nil while the power is off
	rate  string
	mount HomeMount
}

func newHost(c *Cluster, number int) *Host {
	h := &Host{
		Name:    fmt.Sprintf("h%d", number),
		Addr:    c.net.address(number),
		Addr6:   c.net.address6(number),
		Port:    c.options.Port,
		cluster: c,
		number:  number,
		rate:    c.options.Rate,
	}
	if h.Port == 0 {
		h.Port = 22
	}
	h.HomeDir = h.path("home")
	if c.options.SharedHome {
		h.HomeDir = filepath.Join(c.net.dir, "home")
	}
	return h
}

// path is a file or folder of the host's own, outside.
func (h *Host) path(name string) string {
	return filepath.Join(h.cluster.net.dir, h.Name, name)
}

// PowerOff cuts the power: the link goes first, so that nobody hears from the
// host again, then every process dies. What it wrote to its home stays.
func (h *Host) PowerOff() {
	h.cluster.report.Helper()
	h.cluster.check("power off "+h.Name, h.powerOff())
}

// PowerOn starts the host again with the same keys, home and address, and
// waits until sshd answers. Its link is whole, its home mounted normally.
func (h *Host) PowerOn() {
	h.cluster.report.Helper()
	h.cluster.check("power on "+h.Name, h.powerOn())
}

func (h *Host) powerOff() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boot == nil {
		return nil
	}
	// A host whose processes had crashed has no link any more.
	_ = h.setLink("down")
	if err := h.boot.kill(); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	h.boot = nil
	// The link dies with the namespace, but later; a restart wants the name now.
	_ = tool("", "ip", "link", "del", h.link())
	return nil
}

func (h *Host) powerOn() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boot != nil {
		return nil
	}
	h.mount = NormalHome
	b, err := startBoot(h)
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	h.boot = b
	if h.rate != "" {
		return h.setRate(h.rate)
	}
	return nil
}

// Shape limits the host's link in both directions to a rate as tc(8) writes
// it, such as 100mbit, with a queue of 400 ms; an empty rate lifts the limit.
func (h *Host) Shape(rate string) {
	h.cluster.report.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rate = rate
	h.cluster.check("shape "+h.Name, h.setRate(rate))
}

func (h *Host) setRate(rate string) error {
	pid, err := h.pid()
	if err != nil {
		return nil // takes effect when the power comes back
	}
	inside := inNetwork(pid)
	burst, segment := shaping(rate)
	err = inside("ip", "link", "set", "eth0", "gso_max_size", strconv.Itoa(segment))
	if rate == "" {
		// Deleting a limit that is not there is no failure.
		_ = tool("", "tc", "qdisc", "del", "dev", h.link(), "root")
		_ = inside("tc", "qdisc", "del", "dev", "eth0", "root")
		return err
	}
	limit := []string{"root", "tbf", "rate", rate, "burst", strconv.Itoa(burst), "latency", "400ms"}
	return errors.Join(err,
		tool("", "tc", append([]string{"qdisc", "replace", "dev", h.link()}, limit...)...),
		inside("tc", append([]string{"qdisc", "replace", "dev", "eth0"}, limit...)...))
}

// inNetwork runs the machine's programs in the network of a process.
func inNetwork(pid int) func(name string, args ...string) error {
	return func(name string, args ...string) error {
		return tool("", "nsenter", append([]string{"--net", "--target", strconv.Itoa(pid), name}, args...)...)
	}
}

// WrongHostKey restarts the host with other host keys than known_hosts says.
func (h *Host) WrongHostKey() {
	h.cluster.report.Helper()
	err := h.powerOff()
	if err == nil {
		err = h.writeHostKeys()
	}
	if err == nil {
		err = h.powerOn()
	}
	h.cluster.check("change the host key of "+h.Name, err)
}

// pid is process 1 as seen from outside. The caller holds h.mu.
func (h *Host) pid() (int, error) {
	if h.boot == nil {
		return 0, fmt.Errorf("host %s is off", h.Name)
	}
	return h.boot.cmd.Process.Pid, nil
}

// Command returns a command that runs a program inside the host, as root, with
// a host's environment and home and not the test's. It dies with ctx.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	h.mu.Lock()
	pid, err := h.pid()
	h.mu.Unlock()
	inside := append([]string{
		"--mount", "--uts", "--ipc", "--net", "--pid", "--target", strconv.Itoa(pid),
		"--wd=" + h.cluster.root, "--",
		// nsenter must fork, and to end it would not end the program.
		"setpriv", "--pdeathsig", "KILL", "--", name,
	}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", inside...)
	cmd.Err = errors.Join(cmd.Err, err)
	cmd.Dir = "/"
	cmd.Env = h.environ()
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (h *Host) environ() []string {
	return []string{
		"HOME=" + h.cluster.root, "USER=root", "LOGNAME=root", "SHELL=/bin/bash",
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
	}
}

// Freeze stops all processes of the host. The kernel still acknowledges what
// arrives.
func (h *Host) Freeze() {
	h.cluster.report.Helper()
	asked := map[int]bool{}
	h.cluster.check("freeze "+h.Name, h.signalUntil(syscall.SIGSTOP, func(p Process) bool {
		if p.State == 'D' { // as one in vfork whose child was stopped before its exec: it stops before it does anything else
			waits := asked[p.PID]
			asked[p.PID] = true
			return waits
		}
		return p.State == 'T' || p.State == 'Z'
	}))
}

// Thaw continues all processes, also those that were stopped before Freeze. It first
// continues every process, stopped or not: one in vfork is not stopped yet, and
// SIGCONT takes back the SIGSTOP that waits for it.
func (h *Host) Thaw() {
	h.cluster.report.Helper()
	frozen, err := h.Processes()
	h.cluster.check("thaw "+h.Name, err)
	for _, p := range frozen {
		if err := p.Signal(syscall.SIGCONT); !errors.Is(err, os.ErrProcessDone) {
			h.cluster.check("thaw "+h.Name, err)
		}
	}
	h.cluster.check("thaw "+h.Name, h.signalUntil(syscall.SIGCONT, func(p Process) bool {
		return p.State != 'T'
	}))
}

// signalUntil repeats, because processes that run may start others meanwhile.
func (h *Host) signalUntil(s syscall.Signal, done func(Process) bool) error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		all, err := h.Processes()
		if err != nil {
			return err
		}
		left := 0
		for _, p := range all {
			if done(p) {
				continue
			}
			left++
			if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes do not follow %v", left, s)
		}
	}
}
