package launcher

import (
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

func TestWrongRestarts(t *testing.T) {
	for _, c := range []struct {
		r    Restarts
		says string
	}{
		{Restarts{}, ""},
		{Restarts{Max: 3, PerHour: 10, MinWorkers: 2, WaitHost: time.Minute, Backoff: time.Second}, ""},
		{Restarts{Max: -1}, "--max-restarts is negative"},
		{Restarts{Max: 1, PerHour: -1}, "--restarts-per-hour is negative"},
		{Restarts{Max: 1, MinWorkers: -1}, "--min-workers is negative"},
		{Restarts{Max: 1, WaitHost: -1}, "--wait-host is negative"},
		{Restarts{Max: 1, Backoff: -1}, "--restart-backoff is negative"},
		{Restarts{MinWorkers: 2}, ""}, // a job may go on without lost workers although it is never restarted
		{Restarts{Max: 1, MinWorkers: 5}, "--min-workers 5, the job has 4 workers"},
	} {
		err := c.r.validate()
		if err == nil {
			err = c.r.fit(placement{workers: 4})
		}
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || Code(err) != CodeUsage) {
			t.Errorf("%+v: %v, want %q", c.r, err, c.says)
		}
	}
}

// A host that was left out of a job still has worker:0 in its state, that of
// an older generation: it is not the one to ask how the job ended.
func TestTheChiefIsThatOfTheLastGeneration(t *testing.T) {
	state := func(host string, generation int, verdict *protocol.Verdict) protocol.State {
		return protocol.State{Job: "j", Folder: host, Generation: generation, Verdict: verdict,
			Tasks: map[string]*protocol.TaskNow{"worker:0": {}}}
	}
	f := &fleet{}
	for _, name := range []string{"h1", "h2", "h3"} {
		f.remotes = append(f.remotes, newRemote(hostfile.Host{Name: name}, nil, false))
	}
	rs := assemble(f, [][]protocol.State{
		{state("h1", 0, &protocol.Verdict{Code: 125})}, {state("h2", 2, &protocol.Verdict{})}, {state("h3", 1, nil)}})
	if len(rs) != 1 || rs[0].Chief != 1 || rs[0].Verdict == nil || rs[0].Verdict.Code != 0 || !rs[0].Restarts {
		t.Errorf("%+v", rs)
	}
}
