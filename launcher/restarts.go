package launcher

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
)

// Restarts tells how a job continues after a failure. Its zero value: it ends.
type Restarts struct {
	Max        int           // restarts of the job, at most
	PerHour    int           // restarts within an hour, at most; 0: any number
	MinWorkers int           // a generation needs as many workers; 0: as many as the first had
	WaitHost   time.Duration // for lost hosts to return if fewer workers are left
	Backoff    time.Duration // before the first restart; doubled before each further one
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
			return exit.Mistake(fmt.Errorf("%s is negative", n.flag), "")
		}
	}
	return nil
}

// fit refuses a MinWorkers that the job does not have.
func (r Restarts) fit(p placement.Placement) error {
	if r.MinWorkers > p.Workers {
		return exit.Mistake(fmt.Errorf("--min-workers %d, the job has %s", r.MinWorkers, console.Count(p.Workers, "worker")), "")
	}
	return nil
}

// plan returns what the job's driver is told. revive tells whether the driver can start
// new agents: it must reach the hosts over SSH.
func (r Restarts) plan(revive bool) protocol.Restarts {
	return protocol.Restarts{Max: r.Max, PerHour: r.PerHour, MinWorkers: r.MinWorkers, WaitHost: r.WaitHost, Backoff: r.Backoff, Revive: revive}
}
