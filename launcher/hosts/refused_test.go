package hosts

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// refusing is a connection to a host whose agent prints a reason and exits
// with a status.
type refusing struct {
	silent
	status int
}

func (r refusing) Run(_ context.Context, _ string, _ io.Reader, _, stderr io.Writer) error {
	if _, err := io.WriteString(stderr, "plx agent: host h1: the reason\n"); err != nil {
		return err
	}
	return &transport.ExitError{Status: r.status}
}

// An agent that has refused to start with a permanent error matches
// driver.ErrNoAgent, so the driver does not dial again.
func TestPermanentErrorsAreNotRetried(t *testing.T) {
	for code, final := range map[int]bool{noAgent: true, 1: false, 137: false} {
		h := NewHost(hostfile.Host{Name: "h1"}, func(context.Context) (transport.Transport, error) { return refusing{status: code}, nil })
		a := &AgentHost{Host: h, Job: "j", Folder: "h", Binary: ".plx/blobs/x"}
		s := a.Stream(t.Context(), "plx agent start")
		_, err := protocol.Open(s)
		if errors.Is(err, driver.ErrNoAgent) != final || final && !strings.Contains(err.Error(), ": host h1: the reason") {
			t.Errorf("status %d: %v", code, err)
		}
	}
}
