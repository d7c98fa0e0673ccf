package provision

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/test/bootstraptest"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// links are the network interfaces of a host, with one example of each case.
var links = []protocol.Interface{
	{Name: "lo", Up: true, Running: true, Loopback: true, Addrs: []string{"127.0.0.1/8", "::1/128"}},
	{Name: "eth0", Up: true, Running: true, Addrs: []string{"10.0.0.5/24", "10.0.0.1/24", "fe80::1/64", "fd00::1/64"}},
	{Name: "ib0", Up: true, Running: true, Addrs: []string{"fe80::2/64", "fd01::1/64"}},
	{Name: "ib1", Up: true, Addrs: []string{"10.1.0.1/24"}},
	{Name: "ib2", Running: true, Addrs: []string{"10.2.0.1/24"}},
	{Name: "veth1", Up: true, Running: true, Addrs: []string{"fe80::3/64"}},
	{Name: "odd", Up: true, Running: true, Addrs: []string{"nonsense", ""}},
}

func TestOnInterface(t *testing.T) {
	const list = ": the host has eth0 (10.0.0.5, 10.0.0.1, fd00::1), ib0 (fd01::1), ib1 (10.1.0.1, no carrier), ib2 (10.2.0.1, down), " +
		"lo (127.0.0.1, ::1), 2 without an address"
	for _, c := range []struct{ name, wanted, server, four, six, err string }{
		{"eth0", "", "192.0.2.1", "10.0.0.5", "fd00::1", ""},
		{"eth0", "", "10.0.0.1", "10.0.0.1", "fd00::1", ""},
		{"eth0", "", "::ffff:10.0.0.1", "10.0.0.1", "fd00::1", ""},
		{"eth0", "10.0.0.1", "10.0.0.5", "10.0.0.1", "", ""},
		{"eth0", "fd00::1", "10.0.0.5", "", "fd00::1", ""},
		{"eth0", "10.1.0.1", "", "", "", "addr=10.1.0.1 is no address of its network interface" + list},
		{"ib0", "", "", "", "fd01::1", ""},
		{"lo", "", "127.0.0.3", "127.0.0.3", "::1", ""},
		{"eth", "", "", "", "", "no network interface eth" + list},
		{"ib1", "", "", "", "", "network interface ib1 has no carrier (is its cable plugged in?)" + list},
		{"ib2", "", "", "", "", "network interface ib2 is down" + list},
		{"veth1", "", "", "", "", "network interface veth1 has no address that other hosts can dial" + list},
		{"odd", "", "", "", "", "network interface odd has no address that other hosts can dial" + list},
	} {
		got, err := onInterface(links, c.name, c.wanted, c.server)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || first(got.four) != c.four || first(got.six) != c.six || got.loopback != (c.name == "lo") {
			t.Errorf("%+v: got %+v, %v", c, got, err)
		}
	}
}

// first returns the first address, or "" if there is none.
func first(all []netip.Prefix) string { return addresses{four: all}.choose(false, netip.Prefix{}) }

// listing stands for a host that has these network interfaces.
type listing struct{ links []protocol.Interface }

func (l listing) Run(ctx context.Context, script string, stdin io.Reader, stdout, _ io.Writer) error {
	if err := bootstraptest.Runs(script, stdout); err != nil {
		return err
	}
	conn, err := protocol.OpenCalls(protocol.Duplex(stdin, stdout))
	if err == nil {
		_, err = protocol.Serve(ctx, conn, map[protocol.Method]protocol.Handler{
			protocol.DoInterfaces: protocol.Handle(func(context.Context, struct{}) ([]protocol.Interface, error) { return l.links, nil }),
		}, time.Hour)
	}
	return err
}

func (listing) Copy(context.Context, io.Reader, string) error {
	return errors.ErrUnsupported
}

func (listing) Close() error { return nil }

// All hosts get IPv4 addresses, or all get IPv6 addresses, if possible.
func TestFindAddresses(t *testing.T) {
	both := protocol.Interface{Name: "n", Up: true, Running: true, Addrs: []string{"10.0.0.1/24", "fd00::1/64"}}
	four := protocol.Interface{Name: "n", Up: true, Running: true, Addrs: []string{"10.0.0.2/24"}}
	six := protocol.Interface{Name: "n", Up: true, Running: true, Addrs: []string{"fd00::3/64"}}
	two := protocol.Interface{Name: "n", Up: true, Running: true, Addrs: []string{"192.168.7.1/24", "10.0.0.7/24", "10.0.0.8/24"}}
	lo := protocol.Interface{Name: "n", Up: true, Running: true, Loopback: true, Addrs: []string{"127.0.0.1/8"}}
	for _, c := range []struct {
		links []protocol.Interface
		like  string
		want  string
	}{
		{[]protocol.Interface{both, both}, "", "10.0.0.1 10.0.0.1"},
		{[]protocol.Interface{both, four}, "", "10.0.0.1 10.0.0.2"},
		{[]protocol.Interface{both, six, both}, "", "fd00::1 fd00::3 fd00::1"},
		{[]protocol.Interface{both}, "fd00::9", "fd00::1"},
		{[]protocol.Interface{both}, "10.0.0.9", "10.0.0.1"},
		{[]protocol.Interface{two, four}, "", "10.0.0.7 10.0.0.2"}, // the network of both
		{[]protocol.Interface{four, two, two}, "", "10.0.0.2 10.0.0.7 10.0.0.7"},
		{[]protocol.Interface{two, two}, "", "192.168.7.1 192.168.7.1"},
		{[]protocol.Interface{two}, "10.0.0.9", "10.0.0.7"},
		{[]protocol.Interface{two}, "172.16.0.9", "192.168.7.1"},
		{[]protocol.Interface{lo}, "", "127.0.0.1"},
		{[]protocol.Interface{both, lo}, "", "host h1: --nic: network interface n reaches this host only, and the job has others"},
		{make([]protocol.Interface, 5), "", "host h0: --nic: no network interface n: the host has 1 without an address\n" +
			"host h1: --nic: no network interface n: the host has 1 without an address\n" +
			"host h2: --nic: no network interface n: the host has 1 without an address\nand 2 more hosts without a data address"},
		{[]protocol.Interface{{Name: "x", Up: true}, six}, "", "host h0: --nic: no network interface n: the host has 1 without an address"},
	} {
		var all []*Target
		for i, l := range c.links {
			dial := func(context.Context) (transport.Transport, error) { return listing{[]protocol.Interface{l}}, nil }
			h := hosts.NewHost(hostfile.Host{Name: "h" + string(rune('0'+i)), Interface: "n"}, dial)
			defer h.Close() // its agent ends
			all = append(all, &Target{AgentHost: &hosts.AgentHost{Host: h}})
		}
		var got []string
		if err := (&Recipe{PeerAddr: c.like}).FindAddresses(t.Context(), all); err != nil {
			got = append(got, err.Error())
		} else {
			for _, a := range all {
				addr, err := a.DataAddr()
				got = append(got, addr)
				if err != nil {
					t.Error(err)
				}
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: got %q, want %q", c.links, got, c.want)
		}
	}
}
