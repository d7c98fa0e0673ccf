package doctor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/transport"
)

// stuck is a host whose commands print some text and then hang, so
// that only the script of facts has an output.
type stuck struct{ prints string }

func (s stuck) Run(ctx context.Context, command string, _ io.Reader, stdout, _ io.Writer) error {
	if strings.Contains(command, "say begun") {
		io.WriteString(stdout, s.prints) // it is kept in memory
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (stuck) Copy(ctx context.Context, _ io.Reader, _ int64, _ string, _ fs.FileMode) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (stuck) Close() error { return nil }

// A host that hangs is named in bounded time, with what hangs.
func TestStuckHosts(t *testing.T) {
	dialled := func(prints string) transport.Dialer {
		return func(context.Context) (transport.Transport, error) { return stuck{prints}, nil }
	}
	home, _, _ := strings.Cut(healthy, "home.disk")
	for _, c := range []struct {
		name  string
		dial  transport.Dialer
		after time.Duration
		want  string
	}{
		{"connection", func(ctx context.Context) (transport.Transport, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, 18 * time.Second, "error connection: no connection within 18s"},
		{"shell", dialled(""), 15 * time.Second, "error shell: no answer within 15s"},
		{"command", dialled("begun=yes\n"), 15 * time.Second, "error shell: its shell works, and a command hangs or fails (date, uname, id, df): no answer within 15s"},
		{"home", dialled("begun=yes\n" + home), 15 * time.Second, "error home: /home/alice does not answer: no answer within 15s"},
		{"refused", func(context.Context) (transport.Transport, error) {
			return nil, refused{errors.New("login refused: no key")}
		}, 0, "error login: login refused: no key"},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := &visit{host: hosts.NewHost(hostfile.Host{Name: "h"}, c.dial), notes: notes{host: "h"}}
			began := time.Now()
			v.run(t.Context(), console.NewPrinter(console.Terminal{Stdout: io.Discard, Stderr: io.Discard}).NewTally("examining", 1))
			got, took := words(v.notes.all), time.Since(began)
			if !strings.HasPrefix(got, c.want) || took < c.after || took > c.after+time.Second || v.ready {
				t.Errorf("%s: %q after %v, want %q after %v", c.name, got, took, c.want, c.after)
			}
		})
	}
}

// refused is an error of a transport to whose host the user cannot log in.
type refused struct{ error }

func (refused) RefusedBy() (check, cure string) { return transport.Login, "copy the key there" }
