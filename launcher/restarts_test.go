package launcher

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
)

func TestInvalidRestartFlagsAreRejected(t *testing.T) {
	four := &hosts.Set{Hosts: []*hosts.Host{hosts.NewHost(hostfile.Host{Devices: hostfile.Devices{Kind: hostfile.CPUs, Count: 4}}, nil)}}
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
		{Restarts{MinWorkers: 2}, ""}, // without restarts, a job may still continue without lost workers
		{Restarts{Max: 1, MinWorkers: 5}, "--min-workers 5, the job has 4 workers"},
	} {
		err := (&Config{Restarts: c.r}).checkSigns()
		if err == nil {
			err = (&launch{cfg: Config{Restarts: c.r}, set: four, printer: console.NewPrinter(console.Terminal{Stderr: io.Discard})}).place(t.Context())
		}
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || exit.Code(err) != exit.CodeUsage) {
			t.Errorf("%+v: %v, want %q", c.r, err, c.says)
		}
	}
}
