package testhosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Host is one machine of a cluster. Methods that return no error report
// failures to the cluster's Reporter.
type Host struct {
	// Name is h1, h2, and so on. It is the host's own name. The client's ssh
	// config and every host's /etc/hosts map it to Addr.
	Name string
	// Addr is the host's IPv4 address. Addr6 is its IPv6 address; empty if
	// this machine has no IPv6.
	Addr, Addr6 string
	// SecondAddr and SecondAddr6 are the addresses of eth1, see Options.Second.
	SecondAddr, SecondAddr6 string
	// HomeDir is the directory on this machine that is root's home on the
	// host.
	HomeDir string

	cluster *Cluster
	disk    *disk
	link    *link
	second  *link // link of eth1; not connected unless Options.Second is set

	mu   sync.Mutex // held during a whole operation, such as PowerOff
	boot *boot      // nil while the power is off
	rate string     // rate limit of the link, see Shape; "" means no limit
}

func newHost(c *Cluster, number int) *Host {
	d := newDisk(c.net, number, c.options)
	return &Host{
		Name:    d.name,
		Addr:    c.net.address(number),
		Addr6:   c.net.address6(number),
		HomeDir: d.home,
		cluster: c,
		disk:    d,
		link:    &link{c.net.link(number)},
		second:  &link{c.net.secondLink(number)},

		SecondAddr:  c.net.second(number),
		SecondAddr6: c.net.second6(number),
		rate:        c.options.Rate,
	}
}

// PowerOff cuts the host's power. It takes the link down first, so that no
// peer receives a last packet, and then kills all processes. Files in the home
// directory stay.
func (h *Host) PowerOff() {
	h.cluster.report.Helper()
	h.cluster.check("power off "+h.Name, h.powerOff())
}

// PowerOn starts the host again with the same keys, home directory and
// address, and waits until sshd listens. Cuts of its link and special mounts
// of its home directory are undone.
func (h *Host) PowerOn() {
	h.cluster.report.Helper()
	h.cluster.check("power on "+h.Name, h.powerOn())
}

// RestartContainer kills all processes of the host and starts it again like a
// container: in new namespaces, but with the same boot ID.
func (h *Host) RestartContainer() {
	h.cluster.report.Helper()
	h.PowerOff()
	h.disk.container = true
	h.PowerOn()
	h.disk.container = false
}

func (h *Host) powerOff() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boot == nil {
		return nil
	}
	// If the host's processes have crashed, its link is already gone, and this
	// fails.
	_ = h.link.set("down") // fails if the link is already gone
	if err := h.boot.kill(); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	h.boot = nil
	// The kernel removes the links with the namespace, but only later. Remove
	// them now, because a restart needs the same names.
	_ = h.link.remove() // fails if the link is gone already
	if h.cluster.options.Second {
		_ = h.second.remove() // as above
	}
	return nil
}

func (h *Host) powerOn() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.boot != nil {
		return nil
	}
	b, commands, err := h.cluster.warden.boot(h.disk, h.cluster.root)
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	defer commands.Close() // closes it if connect has failed early
	if err := h.connect(b, commands); err != nil {
		return fmt.Errorf("host %s: %w (%v)", h.Name, err, b.kill())
	}
	if h.boot = b; h.rate != "" {
		return h.shape()
	}
	return nil
}

// connect creates the host's link, sends the host the commands that set up its
// end, and waits until sshd listens.
func (h *Host) connect(b *boot, commands *os.File) error {
	n := h.cluster.net
	if err := recordPid(n.pidFile(), b.pid()); err != nil {
		return err
	}
	if err := h.link.plug(b.pid(), "eth0", n.mac(h.disk.number), n.bridge()); err != nil {
		return err
	}
	inside := fmt.Sprintf("link set lo up\naddr add %s/24 dev eth0\n", h.Addr)
	if h.Addr6 != "" {
		inside += fmt.Sprintf("addr add %s/64 dev eth0 nodad\n", h.Addr6)
	}
	if h.cluster.options.Second {
		second, err := h.plugSecond(b.pid())
		if err != nil {
			return err
		}
		inside += second
	}
	if _, err := commands.WriteString(inside + "link set eth0 up\n"); err != nil {
		return fmt.Errorf("set up eth0: %w", err)
	}
	if err := commands.Close(); err != nil {
		return err
	}
	return b.awaitListener(sshPort)
}

// plugSecond creates the host's link to the second network. It returns the
// commands that set up eth1 inside the host.
func (h *Host) plugSecond(pid int) (commands string, err error) {
	n := h.cluster.net
	if err := h.second.plug(pid, "eth1", n.secondMAC(h.disk.number), n.secondBridge()); err != nil {
		return "", err
	}
	commands = fmt.Sprintf("addr add %s/24 dev eth1\n", h.SecondAddr)
	if h.SecondAddr6 != "" {
		commands += fmt.Sprintf("addr add %s/64 dev eth1 nodad\n", h.SecondAddr6)
	}
	return commands + "link set eth1 up\n", nil
}

// WrongHostKey restarts the host with host keys that differ from those in
// known_hosts.
func (h *Host) WrongHostKey() {
	h.cluster.report.Helper()
	err := h.powerOff()
	if err == nil {
		err = h.disk.writeHostKeys()
	}
	if err == nil {
		err = h.powerOn()
	}
	h.cluster.check("change the host key of "+h.Name, err)
}

// isOff returns an error if the host has no power. The caller holds h.mu.
func (h *Host) isOff() error {
	if h.boot == nil {
		return fmt.Errorf("host %s is off", h.Name)
	}
	return nil
}

// Command returns a command that runs a program inside the host as root. The
// program gets the host's environment and home directory instead of the
// test's. It is killed when ctx is done.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	h.mu.Lock()
	err, pid := h.isOff(), 0
	if err == nil {
		pid = h.boot.pid()
	}
	h.mu.Unlock()
	root := h.cluster.root
	inside := append([]string{
		"--mount", "--uts", "--ipc", "--net", "--pid", "--target", strconv.Itoa(pid),
		"--wdns=" + root, "--", // not --wd, which nsenter opens before it enters the host's mount namespace
		// nsenter forks, so killing nsenter would not kill the program without
		// setpriv --pdeathsig.
		"setpriv", "--pdeathsig", "KILL", "--", name,
	}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", inside...)
	cmd.Err = errors.Join(cmd.Err, err)
	cmd.Dir = "/"
	cmd.Env = []string{
		"HOME=" + root, "USER=root", "LOGNAME=root", "SHELL=/bin/bash",
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
	}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// MountHome changes how the host's home directory is mounted, also for running
// programs. HomeDir always shows the normal directory.
func (h *Host) MountHome(m HomeMount) {
	h.cluster.report.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	err := h.isOff()
	if err == nil {
		err = h.boot.mountHome(m)
	}
	h.cluster.check("mount the home of "+h.Name, err)
}

// SetGPUs gives the host count fake GPUs, at most six, by a fake nvidia-smi in
// /usr/local/bin. The GPUs are those of a real machine whose nvidia-smi output
// was recorded. Different hosts get different machines, if several recordings
// have enough GPUs. facts are additional lines for the fake nvidia-smi, such
// as "mode hang" or "driver 550.54.15"; the first lines of its script list
// them. With count 0 and no facts, SetGPUs removes nvidia-smi.
func (h *Host) SetGPUs(count int, facts ...string) {
	h.cluster.report.Helper()
	h.cluster.check("set the GPUs of "+h.Name, h.disk.setGPUs(count, facts...))
}

// Logins returns the number of SSH logins on this host so far. Each connection
// counts once, however many commands run on it.
func (h *Host) Logins() (int, error) {
	log, err := os.ReadFile(h.disk.path("log"))
	if err != nil {
		return 0, fmt.Errorf("testhosts: logins of %s: %w", h.Name, err)
	}
	return strings.Count("\n"+string(log), "\nAccepted "), nil
}
