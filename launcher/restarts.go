package launcher

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/protocol"
)

// Restarts says how a job goes on after a failure. Its zero value: not at all.
type Restarts struct {
	Max        int           // at most, in all
	PerHour    int           // at most, within an hour; 0: any number
	MinWorkers int           // it goes on with as many; 0: is restarted with all that it began with
	WaitHost   time.Duration // for hosts to come back when fewer are left
	Backoff    time.Duration // before the first restart; twice as long before each next
}

func (r Restarts) validate() error {
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"--max-restarts", int64(r.Max)}, {"--restarts-per-hour", int64(r.PerHour)}, {"--min-workers", int64(r.MinWorkers)},
		{"--wait-host", int64(r.WaitHost)}, {"--restart-backoff", int64(r.Backoff)},
	} {
		if n.value < 0 {
			return Mistake(fmt.Errorf("%s is negative", n.flag), "")
		}
	}
	return nil
}

// fit refuses to ask for more workers than there are.
func (r Restarts) fit(p placement) error {
	if r.MinWorkers > p.workers {
		return Mistake(fmt.Errorf("--min-workers %d, the job has %s", r.MinWorkers, count(p.workers, "worker")), "")
	}
	return nil
}

// plan is what a conductor is told. One that reaches hosts over SSH can start
// agents anew.
func (r Restarts) plan(revive bool) protocol.Restarts {
	return protocol.Restarts{Max: r.Max, PerHour: r.PerHour, MinWorkers: r.MinWorkers, WaitHost: r.WaitHost, Backoff: r.Backoff, Revive: revive}
}

// revive starts a new agent on a host whose agent is gone, or does not answer
// any more. The host may have lost its files too.
func (l *launch) revive(ctx context.Context, i int, s *station, tasks []protocol.TaskSpec) (*protocol.Conn, error) {
	if s.facts.OS == "" { // it has joined: plx scale has looked at it
		if err := s.inspect(ctx); err != nil {
			return nil, err
		}
	}
	target := envsync.Target{Name: s.host.Name, Host: s.remote, FileSystem: s.facts.FileSystem}
	if err := envsync.Sync(ctx, []envsync.Target{target}, l.cargo.blobs(s.platform()), nil); err != nil {
		return nil, s.bare(err)
	}
	if err := s.reap(ctx); err != nil {
		return nil, err
	}
	return l.start(ctx, i, s, tasks)
}

// lay notes where the tasks of a new generation run.
func (l *launch) lay(_ int, hosts []protocol.HostPlan) {
	l.laid = hosts
	if err := saveRecord(l.record()); err != nil {
		l.voice.say("%v", err)
	}
}

// forgive tells of what is missing of the logs of a host that was lost, and
// takes it: the job's verdict counts.
func (l *launch) forgive(s *station, err error) bool {
	for i := range l.lost {
		if l.stations[i] == s && l.lost[i].Load() {
			l.voice.say("host %s: logs: %v", s.host.Name, err)
			return true
		}
	}
	return false
}
