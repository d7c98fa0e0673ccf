package testhosts

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Cluster is a set of test hosts on one network bridge. Its methods and those
// of its hosts are safe for concurrent use.
type Cluster struct {
	// Home is the value of HOME for SSH clients of the hosts. Home/.ssh has a
	// config with the hosts' names, their host keys in known_hosts, and the
	// client's key id_ed25519.
	Home string
	// Hosts are the hosts h1, h2, and so on.
	Hosts []*Host
	// Gateway is the address that the test's machine has in the hosts'
	// network.
	Gateway string

	options Options
	report  Reporter
	net     *network
	warden  *warden
	key     string // line of the hosts' authorized_keys with the client's public key
	root    string // root's home directory, at the same path on the test's machine and in each host

	mu    sync.Mutex
	files int // number of resource files written so far; guarded by mu
	once  sync.Once
	err   error // result of the first call of Close
}

// Reporter receives the errors of methods that do not return an error. A
// testing.TB is a Reporter.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// ReportTo returns a Reporter for programs that are not tests: it prints each
// message to w.
func ReportTo(w io.Writer) Reporter { return printer{w} }

type printer struct{ io.Writer }

func (printer) Helper() {}

func (p printer) Errorf(format string, args ...any) { p.Logf(format, args...) }

func (p printer) Logf(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) } // the error is ignored: a report may be lost

// Start starts a cluster and stops it at the end of the test. If the cluster
// does not start, the test fails immediately.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	require(tb)
	c, err := Open(o, tb)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			c.logServers()
		}
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// Open does the same as Start, for programs that are not tests. The caller
// must close the cluster.
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
	if c.options.Second {
		if err := c.net.upSecond(); err != nil {
			return err
		}
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
			if err := h.disk.prepare(c.net.etcHosts(c.options.Hosts), c.key); err != nil {
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

// Close kills the hosts and removes their processes, namespaces, links and
// files. It waits until the processes of each host have ended, at most
// [patience.Limit]. It returns an error if a process is left.
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

// ResourceFile writes a resource file (plx's list of hosts) with the given
// lines to the folder c.Home and returns its path. Without lines, the file
// contains a line with the name of each host.
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

// logServers reports the end of each host's sshd log.
func (c *Cluster) logServers() {
	const most = 2000
	for _, h := range c.Hosts {
		log, err := os.ReadFile(h.disk.path("log"))
		if err != nil {
			log = []byte(err.Error())
		}
		if len(log) > most {
			log = log[len(log)-most:]
		}
		c.report.Logf("sshd of %s:\n%s", h.Name, log)
	}
}

// rootHome returns root's home directory according to the password file, which
// sshd uses, and not according to HOME.
func rootHome() (string, error) {
	root, err := user.LookupId("0")
	if err != nil {
		return "", fmt.Errorf("testhosts: find root's home: %w", err)
	}
	return root.HomeDir, nil
}
