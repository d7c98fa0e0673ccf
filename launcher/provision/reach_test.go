package provision

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
)

// Each host understands localhost as itself, so other hosts cannot use that
// address.
func TestReportH4LocalhostBesideOthers(t *testing.T) {
	host := func(line, addr string) *Target {
		parsed, err := hostfile.ParseLines([]string{line})
		if err != nil {
			t.Fatal(err)
		}
		return &Target{AgentHost: &hosts.AgentHost{Host: &hosts.Host{Resource: parsed[0], Facts: envsync.Facts{ServerAddr: addr}}}}
	}
	h2 := host("h2: cpu", "192.0.2.2")
	embedded := host("e", "127.0.0.2")
	embedded.Embedded = true
	reachable := func(like string, on ...*Target) error { return (&Recipe{PeerAddr: like}).checkReach(t.Context(), on) }
	for _, addr := range []string{"127.0.0.1", "::1"} {
		err := reachable("", host("localhost: cpu*2 A=secret", addr), h2)
		if err == nil || exit.Code(err) != exit.CodeUsage || !strings.Contains(err.Error(), "host localhost: its data address "+addr+" reaches this host only") ||
			!strings.Contains(exit.Hint(err), `"localhost: cpu*2 addr=`) || strings.Contains(exit.Hint(err), "secret") {
			t.Errorf("%s: %v, hint %q", addr, err, exit.Hint(err))
		}
	}
	err := reachable("", host("h1: cpu addr=127.0.0.9", "192.0.2.1"), h2)
	if !strings.Contains(exit.Hint(err), `"h1: cpu addr=192.0.2.1"`) {
		t.Errorf("a host elsewhere: %v, hint %q", err, exit.Hint(err))
	}
	for what, used := range map[string][]*Target{
		"after the hint": {host("localhost: cpu addr=192.0.2.1", "127.0.0.1"), h2}, "alone": {host("localhost", "127.0.0.1")},
		"ports of this machine": {host("localhost:2201:", "127.0.0.1"), host("localhost:2202:", "127.0.0.1")},
		"embedded":              {embedded, h2}, "no address": {host("h3", ""), h2},
	} {
		if err := reachable("", used...); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The host joins a running job, and like is the address of one of the
	// job's hosts.
	for like, refused := range map[string]bool{"192.0.2.2": true, "127.0.0.1": false, "": false} {
		if err := reachable(like, host("localhost", "127.0.0.1")); (err != nil) != refused {
			t.Errorf("beside %q: %v", like, err)
		}
	}
}

// A dry run reports the same error as a launch, as far as the resource file
// shows the addresses.
func TestReachAsWritten(t *testing.T) {
	for text, want := range map[string]string{
		"localhost,h2":                  "host localhost: its data address localhost reaches this host only, and the job has others",
		"h1,127.0.0.1: 0":               "host 127.0.0.1: its data address 127.0.0.1 reaches this host only, and the job has others",
		"h1 addr=127.0.0.1,h2":          "host h1: its data address 127.0.0.1 reaches this host only, and the job has others",
		"h1,h2":                         "",
		"localhost":                     "",
		"localhost,127.0.0.1":           "",
		"localhost addr=192.0.2.1,h2":   "",
		"localhost nic=eth0,h2":         "",
		"127.0.0.2: cpu,127.0.0.3: cpu": "",
	} {
		used, err := hostfile.ParseLines(strings.Split(text, ","))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := CheckReachOffline(used); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// A host whose address other hosts cannot dial is an error before anything is
// sent.
func TestReportA3LinkLocalAddress(t *testing.T) {
	for _, c := range []struct{ line, told, want string }{
		{"'[fe80::1%eth0]: cpu*2 A=secret'", "fe80::1", `addr=IP`},
		{"h1: cpu", "fe80::fc:ff:fe00:1", `"h1: cpu addr=IP"`},
		{"h1: cpu addr=fe80::2", "192.0.2.1", `"h1: cpu addr=IP"`},
		{"h1: cpu addr=192.0.2.7", "fe80::1", ""},
		{"h1: cpu", "fd00::1", ""},
		{"h1: cpu", "169.254.1.1", ""},
	} {
		parsed, err := hostfile.ParseLines([]string{strings.Trim(c.line, "'")})
		if err != nil {
			t.Fatal(err)
		}
		target := func(line hostfile.Host, addr string) *Target {
			h := hosts.NewHost(line, nil)
			h.Facts = envsync.Facts{ServerAddr: addr}
			return &Target{AgentHost: h.Agent()}
		}
		h := target(parsed[0], c.told)
		for _, used := range [][]*Target{{h}, {target(hostfile.Host{Name: "h2"}, "192.0.2.2"), h}} {
			err := (&Recipe{}).FindAddresses(t.Context(), used)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), "link-local") || !strings.Contains(exit.Hint(err), c.want) || exit.Code(err) != exit.CodeUsage || strings.Contains(exit.Hint(err), "secret")) {
				t.Errorf("%s: %v, hint %q", c.line, err, exit.Hint(err))
			}
		}
	}
}
