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

// Host is one machine of a cluster. Operations without a result report their
// failure to the cluster's Reporter.
type Host struct {
	// Name is h1, h2, and so on: the host's own name, and an alias of its
	// address in the client's ssh config and in every host's /etc/hosts.
	Name string
	// Addr is the host's IPv4 address. Addr6 is its IPv6 address, empty if the machine
	// has no IPv6.
	Addr, Addr6 string
	// SecondAddr and SecondAddr6 are the addresses of eth1, see Options.Second.
	SecondAddr, SecondAddr6 string
	// HomeDir is root's home of the host, as a folder of the test's machine.
	HomeDir string

	cluster *Cluster
	disk    *disk
	link    *link
	second  *link // eth1; not plugged in without Options.Second

	mu   sync.Mutex // held for a whole operation on the host
	boot *boot      // nil: the power is off
	rate string     // limit of the link, see Shape; "": none
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

// RestartContainer ends all processes of the host and starts it again as a container: in
// new namespaces, with the boot id that it had.
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
	// A host whose processes had crashed has no link any more.
	_ = h.link.set("down") // fails then
	if err := h.boot.kill(); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	h.boot = nil
	// The links die with the namespace, but later; a restart wants the names now.
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
	defer commands.Close() // connect has, or has failed
	if err := h.connect(b, commands); err != nil {
		return fmt.Errorf("host %s: %w (%v)", h.Name, err, b.kill())
	}
	if h.boot = b; h.rate != "" {
		return h.shape()
	}
	return nil
}

// connect makes the link, tells the host to set up its end, and waits for sshd.
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

// plugSecond makes the host's link to the second network. It returns the commands that
// set up eth1 inside of the host.
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

// WrongHostKey restarts the host with other host keys than known_hosts says.
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

// isOff is an error if the host has no power. The caller holds h.mu.
func (h *Host) isOff() error {
	if h.boot == nil {
		return fmt.Errorf("host %s is off", h.Name)
	}
	return nil
}

// Command returns a command that runs a program inside the host, as root, with
// a host's environment and home and not the test's. It dies with ctx.
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
		"--wdns=" + root, "--", // --wd is opened before the mounts of the host are entered
		// nsenter must fork, and to end it would not end the program.
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

// MountHome changes how the host's home is mounted, for the programs that run
// already too. HomeDir always shows the normal one.
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

// SetGPUs gives the host so many fake GPUs, six at most, by the stand-in for
// nvidia-smi of gpuprobe's test data in /usr/local/bin. They are the first ones of a
// real machine whose nvidia-smi was recorded, another one on the next host as far as
// there is one with so many. Further lines are facts for the stand-in, such as "mode
// hang" or "driver 550.54.15"; its first lines say which it knows. No GPUs and no
// facts take the tool away.
func (h *Host) SetGPUs(count int, facts ...string) {
	h.cluster.report.Helper()
	h.cluster.check("set the GPUs of "+h.Name, h.disk.setGPUs(count, facts...))
}

// Logins is how often somebody has logged in over SSH so far: every connection
// counts once, whatever runs on it.
func (h *Host) Logins() (int, error) {
	log, err := os.ReadFile(h.disk.path("log"))
	if err != nil {
		return 0, fmt.Errorf("testhosts: logins of %s: %w", h.Name, err)
	}
	return strings.Count("\n"+string(log), "\nAccepted "), nil
}
