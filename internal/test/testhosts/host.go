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

// Host is one machine of a cluster. Methods that do not return an error report
// failures to the cluster's Reporter.
type Host struct {
	// Name is h1, h2, and so on. It is the host's own name. The client's ssh
	// config and every host's /etc/hosts map it to Addr.
	Name string
	// Addr is the host's IPv4 address. Addr6 is its IPv6 address, or empty if
	// the test's machine has no IPv6.
	Addr, Addr6 string
	// SecondAddr and SecondAddr6 are the IPv4 and IPv6 addresses of the second
	// interface, eth1. They are used only if Options.Second is set.
	SecondAddr, SecondAddr6 string
	// HomeDir is the directory on the test's machine that is root's home on
	// the host.
	HomeDir string

	cluster *Cluster
	disk    *disk
	link    *link
	second  *link // link of the second interface, eth1; not connected unless Options.Second is set

	mu   sync.Mutex // locked during a whole operation such as PowerOff
	boot *boot      // the current run of the host; nil while the power is off
	rate string     // rate limit of the link, set by Shape; "" means no limit
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

// PowerOff cuts the host's power. It first takes the link down, so that no
// other host receives a packet of a dying process, and then kills all
// processes. Files in the home directory stay.
func (h *Host) PowerOff() {
	h.cluster.report.Helper()
	h.cluster.check("power off "+h.Name, h.powerOff())
}

// PowerOn starts the host again with the same keys, home directory and
// address, and waits until sshd listens. It undoes Cut, Mute, Deafen and
// MountHome.
func (h *Host) PowerOn() {
	h.cluster.report.Helper()
	h.cluster.check("power on "+h.Name, h.powerOn())
}

// RestartContainer kills all processes of the host and starts the host again
// as a container is restarted: in new namespaces, but with the same boot ID.
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
	// If the host's processes have crashed, the link is already gone, and set
	// fails.
	_ = h.link.set("down") // an error means that the link is already gone
	if err := h.boot.kill(); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	h.boot = nil
	// The kernel removes the links together with the namespace, but later.
	// Remove them now, because a restart needs links with the same names.
	_ = h.link.remove() // an error means that the link is already gone
	if h.cluster.options.Second {
		_ = h.second.remove() // an error means that the link is already gone
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
	defer commands.Close() // if connect fails early, it leaves the file open; closing the file twice does no harm
	if err := h.connect(b, commands); err != nil {
		return fmt.Errorf("host %s: %w (%v)", h.Name, err, b.kill())
	}
	if h.boot = b; h.rate != "" {
		return h.shape()
	}
	return nil
}

// connect creates the host's link and sends the host the commands that set up
// the link's end inside the host. It then waits until sshd listens.
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
		"--wdns=" + root, "--", // unlike --wd, a path that nsenter opens after it has entered the host's mount namespace
		// nsenter forks, so killing nsenter does not kill the program. With
		// --pdeathsig, the kernel kills the program when nsenter dies.
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

// MountHome changes how the host's home directory is mounted, even for
// programs that are already running. HomeDir always shows the normal
// directory.
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
// as "mode hang" or "driver 550.54.15"; the comment at the beginning of its
// script lists them. With count 0 and no facts, SetGPUs removes nvidia-smi.
func (h *Host) SetGPUs(count int, facts ...string) {
	h.cluster.report.Helper()
	h.cluster.check("set the GPUs of "+h.Name, h.disk.setGPUs(count, facts...))
}

// Logins returns the number of SSH logins on this host so far. A connection
// counts once, even if several commands run on it.
func (h *Host) Logins() (int, error) {
	log, err := os.ReadFile(h.disk.path("log"))
	if err != nil {
		return 0, fmt.Errorf("testhosts: logins of %s: %w", h.Name, err)
	}
	return strings.Count("\n"+string(log), "\nAccepted "), nil
}
