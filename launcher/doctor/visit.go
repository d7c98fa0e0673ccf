package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/bootstrap"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/furnish"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
)

// Bounds of one host. A dial that the server refuses for load is tried again within the
// first.
const (
	connectTime = 18 * time.Second
	lookTime    = 15 * time.Second
	sendTime    = 2 * time.Minute
)

var errLook = fmt.Errorf("no answer within %v", lookTime)

// visit is what is found on one host, and written by one goroutine at a time.
type visit struct {
	host    *hosts.Host
	connect time.Duration   // to connect and to log in, or to fail
	facts   *Facts          // nil: the host did not answer
	report  gpuprobe.Report // of its GPUs
	notes   notes
	ready   bool // the agent can be sent

	agent       *hosts.AgentHost     // nil: it was not sent
	lost        bool                 // it has no data address
	agentReport *protocol.HostReport // nil: the agent has not answered
	answer      *furnish.Imported    // of python3; nil: it was not asked, or has not answered
}

// known returns what is known of the host.
func (v *visit) known() HostFacts {
	return HostFacts{Host: v.notes.host, ConnectMS: v.connect.Milliseconds(), Noise: v.host.Noise.Load(), Facts: v.facts, Agent: v.agentReport, Python: v.answer}
}

// visitAll connects to all hosts and looks at them.
func (e *examination) visitAll(ctx context.Context) error {
	tally := e.printer.NewTally("examining", len(e.visits))
	err := hosts.Each(ctx, e.set.Hosts, func(i int, _ *hosts.Host) error { // the visits have the errors
		e.visits[i].run(ctx, tally)
		return nil
	})
	e.set.Placed(nil)
	return err
}

func (v *visit) run(ctx context.Context, tally *console.Tally) {
	if err := v.dial(ctx); err != nil {
		v.notes.unreached(err)
		return
	}
	tally.Begin(v.notes.host)
	defer tally.End(v.notes.host)
	v.look(ctx)
}

func (v *visit) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTime, fmt.Errorf("no connection within %v", connectTime))
	defer cancel()
	began := time.Now()
	err := v.host.Dial(ctx)
	v.connect = time.Since(began)
	return err
}

// look runs everything that needs no agent.
func (v *visit) look(ctx context.Context) {
	facts, asked, placed := v.inspect(ctx)
	if facts.OS != "" {
		v.facts = &facts
	}
	switch {
	case asked != nil && facts.step != "":
		v.notes.failed(Home, fmt.Errorf("%s does not answer: %w", facts.step, asked), "repair the file server or the disk behind it")
		return
	case asked != nil && facts.begun:
		asked = fmt.Errorf("its shell works, and a command hangs or fails (date, uname, id, df): %w", asked)
		fallthrough
	case asked != nil:
		v.notes.failed(Shell, asked, "ssh HOST echo hello must print hello, nothing else, and end at once")
		return
	}
	v.notes.judge(facts)
	if placed == nil {
		v.probe(ctx)
	} else if refused := (*bootstrap.Refused)(nil); !v.notes.errors() && errors.As(placed, &refused) {
		v.notes.failed(Home, placed, "free space, or repair the home folder")
	} else if !v.notes.errors() {
		v.notes.failed(Agent, fmt.Errorf("plx does not run there: %w", placed), "run it by hand: ~/.plx/blobs/* version")
	}
	v.ready = placed == nil && !v.notes.errors()
}

// inspect runs facts.sh, and places plx as a launch does.
func (v *visit) inspect(ctx context.Context) (facts Facts, asked, placed error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sendTime, fmt.Errorf("it was not sent within %v", sendTime))
	defer cancel()
	var work errgroup.Group
	work.Go(func() error { placed = v.host.Meet(ctx); return nil })
	looking, done := context.WithTimeoutCause(ctx, lookTime, errLook)
	defer done()
	if facts, asked = v.ask(looking); asked != nil {
		cancel() // plx would say less of what is wrong
	}
	work.Wait() // the function returns nil
	return facts, asked, placed
}

// probe looks for GPUs, when the host is known to answer. The probe bounds itself: a sound
// nvidia-smi may take long.
func (v *visit) probe(ctx context.Context) {
	var err error
	if v.report, err = v.host.Probe(ctx, nil); err != nil {
		v.notes.failed(GPUs, err, "run nvidia-smi there by hand")
		return
	}
	if v.host.Embedded {
		v.report.AddLocal()
	}
	v.notes.judgeGPUs(placement.Machine{Host: v.host.Resource, Report: &v.report})
}

// ask runs facts.sh. With an error it returns what had arrived.
func (v *visit) ask(ctx context.Context) (Facts, error) {
	out := &answer{}
	asked := time.Now()
	// Hosts may share a home: their files need different names.
	err := v.host.Script(ctx, "token="+rand.Text()+"\n"+factsScript, nil, out)
	text, first := out.result()
	facts := parseFacts(text, exchange{asked, first})
	switch {
	case facts.complete:
		return facts, nil // what comes after it does not count
	case err == nil:
		err = errors.New("its shell ended early")
	}
	return facts, err
}

// answer keeps the first bytes of an output, and when it began.
type answer struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	first time.Time
}

// mostAnswer bounds what a host may answer.
const mostAnswer = 64 << 10

func (a *answer) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first.IsZero() {
		a.first = time.Now()
	}
	a.buf.Write(p[:min(len(p), mostAnswer-a.buf.Len())])
	return len(p), nil
}

func (a *answer) result() (text string, first time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.buf.String(), a.first
}
