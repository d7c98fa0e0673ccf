package jobs

import (
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
)

func TestMatchByIDNameOrPrefix(t *testing.T) {
	rs := []Record{ // the oldest first
		{Job: "mlp-20250101-000000-aaaa"}, {Job: "mlp-20250102-000000-bbbb"},
		{Job: "night-20250103-000000-cccc", Name: "night"}, {Job: "night-20250104-000000-dddd", Name: "night"},
	}
	for text, want := range map[string]string{
		"mlp-20250101-000000-aaaa": rs[0].Job, // whole
		"mlp-20250102":             rs[1].Job, // a beginning
		"night":                    rs[3].Job, // the newest job of this name
		"night-20250103":           rs[2].Job,
	} {
		if got, err := match(rs, text); err != nil || got.Job != want {
			t.Errorf("%s: %s, %v; want %s", text, got.Job, err, want)
		}
	}
	for _, text := range []string{"mlp", "mlp-2025", "other", "ight"} {
		if got, err := match(rs, text); err == nil || exit.Code(err) != exit.CodeUsage || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %s, %v; want a usage error that names it", text, got.Job, err)
		}
	}
}

// TestForeignHostIsRefusedReportL1: a named host that the job does not have is
// an error, which lists the job's hosts. A file of hosts may list other hosts too.
func TestForeignHostIsRefusedReportL1(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	record := func(job string, hosts ...string) Record {
		r := Record{Job: job, Name: "night", Created: time.Now()}
		for _, h := range hosts {
			r.Hosts = append(r.Hosts, HostRecord{Line: h + ": 0,1", Folder: h, Binary: strings.Repeat("a", 64), Tasks: []string{"worker:0"}})
		}
		return r
	}
	here := record("here", "h1", "h2.cluster")
	if err := here.Save(); err != nil {
		t.Fatal(err)
	}
	there := record("there", "h3")
	for name, c := range map[string]struct {
		job, hosts, named string
		found             []Record
		all               bool
		refused           string // the host; "": none
	}{
		"its host":                   {"here", "h1", "h1", nil, true, ""},
		"another host":               {"here", "h9", "h9", nil, true, "h9"},
		"one of two":                 {"here", "h1 h9", "h1 h9", nil, true, "h9"},
		"out of reach":               {"here", "h9", "h9", nil, false, "h9"},
		"under the name":             {"night", "h9", "h9", nil, true, "h9"},
		"a larger file":              {"here", "h1 h9", "", nil, true, ""},
		"a file of other hosts":      {"here", "h8 h9", "", nil, true, "h[8-9]"},
		"a job of another machine":   {"there", "h3 h9", "h3 h9", []Record{there}, true, "h9"},
		"which may have lost a host": {"there", "h3 h9", "h3 h9", []Record{there}, false, ""},
		"any job":                    {"", "h9", "h9", nil, true, ""},
		"an unknown job":             {"none", "h9", "h9", nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := Query{Job: c.job, Named: strings.Fields(c.named)}
			for _, h := range strings.Fields(c.hosts) {
				q.Reach.Hosts = append(q.Reach.Hosts, hostfile.Host{Name: h})
			}
			err := q.refuseHosts(c.found, c.all)
			if c.refused == "" && err != nil || c.refused != "" && (exit.Code(err) != exit.CodeUsage || !strings.HasSuffix(err.Error(), "it has no host "+c.refused) || !strings.HasPrefix(exit.Hint(err), "its hosts are ")) {
				t.Errorf("%v, hint %q; refused: %q", err, exit.Hint(err), c.refused)
			}
		})
	}
}
