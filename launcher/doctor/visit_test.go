package doctor

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/transport"
)

// A host that hangs is reported within a time limit, with the operation that
// hangs.
func TestHungHostsAreReported(t *testing.T) {
	for _, c := range []struct {
		name  string
		dial  transport.Dialer
		after time.Duration
		want  string
	}{
		{"connection", func(ctx context.Context) (transport.Transport, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, connectTime, "error connection: host h: no connection within 3m0s"},
		{"refused", func(context.Context) (transport.Transport, error) {
			return nil, refused{errors.New("login refused: no key")}
		}, 0, "error login: host h: login refused: no key"},
	} {
		synctest.Test(t, func(t *testing.T) {
			set := &hosts.Set{Hosts: []*hosts.Host{hosts.NewHost(hostfile.Host{Name: "h"}, c.dial)}}
			e := newExamination(Config{}, set, console.NewPrinter(console.Terminal{Stdout: io.Discard, Stderr: io.Discard}))
			began := time.Now()
			if err := e.placeAgents(t.Context()); err != nil {
				t.Error(err)
			}
			got, took := e.words(), time.Since(began)
			if !strings.HasPrefix(got, c.want) || took < c.after || took > c.after+time.Second || len(e.placed) > 0 {
				t.Errorf("%s: %q after %v, want %q after %v", c.name, got, took, c.want, c.after)
			}
		})
	}
}

// refused is the error of a transport whose host refuses the login.
type refused struct{ error }

func (refused) RefusedBy() (check, cure string) { return transport.Login, "copy the key there" }
