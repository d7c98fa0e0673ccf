package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/test/bootstraptest"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/checkup"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
	"github.com/plx-run/plx/launcher/transport"
)

// agentHost is a fake host on which a function replaces "plx agent start".
type agentHost func(ctx context.Context, in io.Reader, out io.Writer) error

func (a agentHost) Run(ctx context.Context, command string, in io.Reader, out, _ io.Writer) error {
	if err := bootstraptest.Runs(command, out); err != nil {
		return err
	}
	return a(ctx, in, out)
}

func (agentHost) Copy(context.Context, io.Reader, string) error { return nil }
func (agentHost) Close() error                                  { return nil }

// answers returns a fake host whose agent supports the given methods.
func answers(methods map[protocol.Method]protocol.Handler) agentHost {
	return func(ctx context.Context, in io.Reader, out io.Writer) error {
		conn, err := protocol.OpenCalls(protocol.Duplex(in, out))
		if err == nil {
			_, err = protocol.Serve(ctx, conn, methods, patience.Limit)
		}
		return err
	}
}

// honest returns a host with the real agent code.
func honest() agentHost {
	a := &checkup.Agent{}
	return answers(map[protocol.Method]protocol.Handler{protocol.DoCheckup: protocol.Handle(a.Report), protocol.DoMeet: protocol.Handle(a.DialPeers)})
}

// agents returns an examination of hosts h1, h2, ... on which the agent is
// installed.
func agents(addr string, all ...agentHost) *examination {
	e := newExamination(Config{}, &hosts.Set{}, console.NewPrinter(console.Terminal{Stdout: io.Discard, Stderr: io.Discard}))
	for i, a := range all {
		name := fmt.Sprint("h", i+1)
		h := hosts.NewHost(hostfile.Host{Name: name, DataAddr: addr}, func(context.Context) (transport.Transport, error) { return a, nil })
		e.placed = append(e.placed, &visit{Target: &provision.Target{AgentHost: h.Agent()}, notes: notes{host: name}})
	}
	e.visits = append(e.placed[:len(all):len(all)], &visit{notes: notes{host: "unreached"}})
	return e
}

func (e *examination) words() string {
	var all []Finding
	for _, v := range e.visits {
		for _, f := range v.all {
			f.Text = where(f.Hosts) + ": " + f.Text
			all = append(all, f)
		}
	}
	return words(all)
}

func TestAgentsDialEachOther(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	broken := func(context.Context, io.Reader, io.Writer) error { return errors.New("exec format error") }
	// The address of a closed listener, so that connections to it fail.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close() // from here on, no process listens on the port
	deaf := answers(map[protocol.Method]protocol.Handler{
		protocol.DoCheckup: protocol.Handle(func(context.Context, protocol.Checkup) (protocol.HostReport, error) {
			return protocol.HostReport{Addr: ln.Addr().String()}, nil
		}),
		protocol.DoMeet: protocol.Handle(func(context.Context, []protocol.Peer) ([]protocol.CheckupFailure, error) {
			return []protocol.CheckupFailure{{Unreached: protocol.Unreached{Peer: protocol.Peer{Index: 99}, Cause: "a lie"}}}, nil
		}),
	})
	e := agents("127.0.0.1", honest(), broken, deaf, honest())
	if err := e.askAgents(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := e.words()
	at := e.visits[2].agentReport.Addr
	want := "error network: host h1: cannot connect to host h3 at " + at + " for data: dial tcp " + at + ": connect: connection refused\n" +
		"error agent: host h2: plx does not run there: no plx agent answered: exec format error after 0 bytes"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if e.dials != (DialCounts{3, 4}) || e.visits[0].agentReport == nil || e.visits[3].agentReport == nil {
		t.Errorf("%+v", e.dials)
	}
}

func TestAgentWithoutAddress(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	e := agents("", honest(), honest())
	e.visits[1].Facts = envsync.Facts{ServerAddr: "192.0.2.1"} // address of a router in front of the host
	if err := e.askAgents(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := e.words(); !strings.HasPrefix(got, "error network: host h1: its address is not known: no SSH server has told it by SSH_CONNECTION") || strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
	if r := e.visits[1].agentReport; r == nil || !strings.HasPrefix(r.Refused, "data address 192.0.2.1 is not an address of this host") {
		t.Errorf("%+v", r)
	}
	if e.visits[0].agentReport == nil || e.dials != (DialCounts{}) {
		t.Errorf("%+v", e.dials)
	}
}

// Agents that do not reply, or send without end, are reported within a time
// limit.
func TestHostileAgents(t *testing.T) {
	silent := func(ctx context.Context, _ io.Reader, _ io.Writer) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	endless := func(_ context.Context, _ io.Reader, out io.Writer) error {
		for {
			if _, err := io.WriteString(out, strings.Repeat(" ", 64<<10)); err != nil {
				return err
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		e := agents("127.0.0.1", silent, endless)
		began := time.Now()
		if err := e.askAgents(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "error agent: host h1: plx does not run there: its agent has not started within 25s\n" +
			`error agent: host h2: plx does not run there: no plx agent answered, but something that begins with " "`
		if got := e.words(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if took := time.Since(began); took != 25*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
