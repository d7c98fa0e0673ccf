package jobs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/transport"
)

// The time limit of a host begins after the connection to it is open. For a
// host that cannot be reached, Stop prints only the connection error.
func TestStopTimeBeginsAtTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		down := errors.New("host h1: down") // the form of a transport's error
		r := hosts.NewHost(hostfile.Host{Name: "h1"}, func(context.Context) (transport.Transport, error) {
			dials++
			time.Sleep(time.Hour) // the fake clock's
			return nil, down
		})
		j := &Job{Record: Record{Job: "j", Hosts: make([]HostRecord, 1)}, agents: []*hosts.AgentHost{{Host: r, Job: "j"}}}
		err := (&stopper{job: j, cfg: StopConfig{Grace: time.Second}}).stop(t.Context())
		if want := "host h1: stop job j: down"; !errors.Is(err, down) || err.Error() != want || dials != 1 {
			t.Errorf("%v after %d dials, want %s", err, dials, want)
		}
	})
}
