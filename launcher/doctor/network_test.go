package doctor

import (
	"slices"
	"testing"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

// wired returns the report of an agent whose data address is on eth0.
func wired() protocol.HostReport {
	up := protocol.Interface{Up: true, Running: true, MTU: 1500}
	lo, eth, ib := up, up, up
	lo.Name, lo.Loopback, lo.Addrs = "lo", true, []string{"127.0.0.1/8"}
	eth.Name, eth.Speed, eth.Addrs = "eth0", 1000, []string{"10.0.0.1/24"}
	ib.Name, ib.Speed, ib.Addrs = "ib0", 1000, []string{"fe80::1/64", "10.1.0.1/24"}
	return protocol.HostReport{Addr: "10.0.0.1:7000", Interface: "eth0", Links: []protocol.Interface{lo, eth, ib}}
}

func TestJudgeReport(t *testing.T) {
	const slow = "warning network: data goes over eth0 (1000 Mbit/s), and ib0 has 100000 Mbit/s"
	fast := func(r *protocol.HostReport) { r.Links[2].Speed = 100000 }
	for _, c := range []struct {
		name   string
		change func(*protocol.HostReport)
		site   site
		want   string
	}{
		{"good", func(*protocol.HostReport) {}, site{}, ""},
		{"strays", func(r *protocol.HostReport) {
			r.Strays = []protocol.Stray{{Job: "j", PIDs: []int{5, 6}}, {Job: "k", PIDs: []int{1, 2, 3, 4, 5, 6, 7}}}
		}, site{}, "warning leftovers: job j is over, and processes of it are left: pid 5 6\n" +
			"warning leftovers: job k is over, and processes of it are left: pid 1 2 3 4 5 and 2 more"},
		{"old jobs", func(r *protocol.HostReport) { r.Old = 3 }, site{}, "warning leftovers: jobs that ended more than 30 days ago take room in ~/.plx"},
		{"jobs", func(r *protocol.HostReport) { r.Broken = "permission denied" }, site{}, "warning leftovers: its jobs could not be listed: permission denied"},
		{"no address", func(r *protocol.HostReport) {
			r.Refused, r.Interface = "data address 1.2.3.4 is not an address of this host", "lo"
		}, site{},
			"error network: data address 1.2.3.4 is not an address of this host"},
		{"no subreaper", func(r *protocol.HostReport) { r.NoSubreaper = "operation not permitted" }, site{},
			"error processes: plx cannot adopt orphans (PR_SET_CHILD_SUBREAPER): operation not permitted"},
		{"no pidfd", func(r *protocol.HostReport) { r.NoPidfd = "function not implemented" }, site{},
			"warning processes: plx has no safe handle on processes (pidfd_open): function not implemented"},
		{"logind", func(r *protocol.HostReport) { r.LogindKills = true }, site{}, "warning processes: logind kills the processes of a login that ends, and so detached jobs (--detach)"},
		{"logind and scope", func(r *protocol.HostReport) { r.LogindKills, r.Scope = true, true }, site{}, ""},
		{"logind and root", func(r *protocol.HostReport) { r.LogindKills = true }, site{root: true}, ""},
		{"few processes", func(r *protocol.HostReport) { r.PidsMax = 1023 }, site{}, "warning limits: the control group of a login may have 1023 processes and threads"},
		{"enough processes", func(r *protocol.HostReport) { r.PidsMax = 1024 }, site{}, ""},
		{"loopback", func(r *protocol.HostReport) { r.Interface = "lo" }, site{}, "error network: its data address is on lo, which reaches the host itself only: ssh arrives through a tunnel?"},
		{"loopback alone", func(r *protocol.HostReport) { r.Interface = "lo" }, site{alone: true}, ""},
		{"faster", fast, site{}, slow},
		{"faster, alone", fast, site{alone: true}, ""},
		{"faster, chosen by name", fast, site{line: hostfile.Host{Interface: "eth0"}}, ""},
		{"faster, chosen by address", fast, site{line: hostfile.Host{DataAddr: "10.0.0.1"}}, ""},
		{"faster, down", func(r *protocol.HostReport) { fast(r); r.Links[2].Running = false }, site{}, ""},
		{"faster, no address", func(r *protocol.HostReport) { fast(r); r.Links[2].Addrs = []string{"fe80::1/64"} }, site{}, ""},
		{"speed not known", func(r *protocol.HostReport) { fast(r); r.Links[1].Speed = 0 }, site{}, ""},
		{"no interface", func(r *protocol.HostReport) { fast(r); r.Interface = "" }, site{}, ""},
	} {
		r := wired()
		c.change(&r)
		n := notes{host: "h"}
		n.judgeReport(r, c.site)
		if got := words(n.all); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		for _, f := range n.all {
			if f.Remedy == "" {
				t.Errorf("%s has no remedy", c.name)
			}
		}
	}
}

// A host can only report failures about the peers that it was asked to try.
// plx prints its own names for them.
func TestJudgePeers(t *testing.T) {
	peers := []protocol.Peer{{Index: 0, Host: "h1", Addr: "10.0.0.1:1"}, {Index: 3, Host: "h4", Addr: "10.0.0.4:4"}}
	failure := func(index int, connected bool) protocol.CheckupFailure {
		return protocol.CheckupFailure{Connected: connected,
			Unreached: protocol.Unreached{Peer: protocol.Peer{Index: index, Host: "x", Addr: "x"}, Cause: "no answer"}}
	}
	n := notes{host: "h3"}
	n.judgePeers([]protocol.CheckupFailure{failure(3, true), failure(2, false), failure(0, false)}, peers)
	want := "error network: connects to host h4 at 10.0.0.4:4 for data, and 64 KiB do not arrive: no answer\n" +
		"error network: cannot connect to host h1 at 10.0.0.1:1 for data: no answer"
	if got := words(n.all); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Each host is dialled, each host dials the first one, and the number of dials
// is linear in the number of hosts.
func TestDials(t *testing.T) {
	for n := range 200 {
		pairs, dialled := 0, map[int]bool{}
		for i := range n {
			to := peersToDial(i, n)
			pairs += len(to)
			for _, j := range to {
				if j == i || j >= n {
					t.Fatalf("%d of %d dials %d", i, n, j)
				}
				dialled[j] = true
			}
			if i > 0 && !slices.Contains(to, 0) {
				t.Errorf("%d of %d does not dial the first", i, n)
			}
		}
		if n > 1 && len(dialled) != n || pairs > 2*n {
			t.Errorf("%d hosts: %d pairs, %d are dialled", n, pairs, len(dialled))
		}
	}
}
