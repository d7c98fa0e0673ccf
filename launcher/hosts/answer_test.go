package hosts

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/transport"
)

// endless is a connection to a host that prints endless output for every
// command.
type endless struct{ silent }

func (endless) Copy(context.Context, io.Reader, string) error { return nil }

func (endless) Run(ctx context.Context, _ string, _ io.Reader, stdout, _ io.Writer) error {
	piece := bytes.Repeat([]byte(" "), 1<<16)
	for range 4 * maxAnswer / len(piece) { // limited, so that the test ends even if Answer has no limit
		if _, err := stdout.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

// If a host prints endless output, the memory used is limited and the error
// names the host.
func TestEndlessReplyIsRejected(t *testing.T) {
	for what, want := range map[string]string{"state": "more than 1 MiB before a reply", "outputs": "reply is longer than 64 MiB"} {
		h := NewHost(hostfile.Host{Name: "liar", Interface: "ib0"}, func(context.Context) (transport.Transport, error) { return endless{}, nil })
		a := &AgentHost{Host: h, Job: "j", Folder: "h", Binary: ".plx/blobs/x"}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var err error
		if what == "state" {
			_, err = a.State(t.Context())
		} else {
			err = h.Run(t.Context(), what, nil, new(BoundedBuffer), nil)
		}
		err = a.Named(err)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "host liar: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 4*maxAnswer { // a buffer that doubles
			t.Errorf("%s: %d MiB were allocated", what, bytes>>20)
		}
	}
}
