package testhosts

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Cluster is a set of hosts on one bridge. Its methods and those of its hosts
// may be called from any goroutine.
type Cluster struct {
	// Home is what HOME is to be for a client of the hosts. Its .ssh holds a
	// config with the hosts' names, their keys in known_hosts, and id_ed25519.
	Home string
	// Hosts are h1, h2, and so on.
	Hosts []*Host
	// Gateway is the address of the test's machine on the hosts' network.
	Gateway string

	options Options
	report  Reporter
	net     *network
	warden  *warden
	key     string // the line that lets the client in
	root    string // root's home, on this machine and inside of each host

	mu    sync.Mutex
	files int // resource files written
	once  sync.Once
	err   error
}

// Reporter is told what went wrong in operations that have no result; a
// testing.TB is one.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// Open is Start for programs that are no tests. The caller owns the cluster
// and must Close it.
func Open(o Options, report Reporter) (*Cluster, error) {
	if err := errors.Join(o.validate(), Available()); err != nil {
		return nil, err
	}
	network, err := claimNetwork()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Home:    filepath.Join(network.dir, "client"),
		Gateway: network.gateway(),
		options: o,
		report:  report,
		net:     network,
		warden:  newWarden(),
	}
	if err := c.open(); err != nil {
		c.logServers()
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) open() (err error) {
	if c.root, err = rootHome(); err != nil {
		return err
	}
	if err := c.net.up(); err != nil {
		return err
	}
	if c.key, err = c.writeClientHome(); err != nil {
		return err
	}
	for i := range c.options.Hosts {
		c.Hosts = append(c.Hosts, newHost(c, i+1))
	}
	var start errgroup.Group
	start.SetLimit(8)
	for _, h := range c.Hosts {
		start.Go(func() error {
			if err := h.prepare(); err != nil {
				return fmt.Errorf("testhosts: prepare %s: %w", h.Name, err)
			}
			return h.powerOn()
		})
	}
	if err := start.Wait(); err != nil {
		return err
	}
	return c.writeClientConfig()
}

// Close ends the hosts and removes all that belongs to them: processes,
// namespaces, links, files. It waits ten seconds at most for each host's
// processes, and reports those that are still there.
func (c *Cluster) Close() error {
	c.once.Do(func() {
		var end errgroup.Group
		for _, h := range c.Hosts {
			end.Go(h.powerOff)
		}
		c.err = end.Wait()
		c.warden.close()
		c.err = errors.Join(c.err, c.net.release())
	})
	return c.err
}

// ResourceFile writes a resource file of these lines into Home, or of every
// host's name and nothing else when there are no lines, and returns its path.
func (c *Cluster) ResourceFile(lines ...string) string {
	c.report.Helper()
	if len(lines) == 0 {
		for _, h := range c.Hosts {
			lines = append(lines, h.Name)
		}
	}
	c.mu.Lock()
	c.files++
	path := filepath.Join(c.Home, fmt.Sprintf("resources%d.txt", c.files))
	c.mu.Unlock()
	text := strings.Join(lines, "\n") + "\n"
	c.check("write a resource file", os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (c *Cluster) check(what string, err error) {
	c.report.Helper()
	if err != nil {
		c.report.Errorf("testhosts: %s: %v", what, err)
	}
}

// logServers shows the end of what each host's sshd wrote.
func (c *Cluster) logServers() {
	const most = 2000
	for _, h := range c.Hosts {
		log, err := os.ReadFile(h.path("log"))
		if err != nil {
			log = []byte(err.Error())
		}
		if len(log) > most {
			log = log[len(log)-most:]
		}
		c.report.Logf("sshd of %s:\n%s", h.Name, log)
	}
}

// tool runs one of the system's programs and gives its complaint as the error.
func tool(stdin string, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
