package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
)

// Bounds of one host. A dial that the server refuses for load is tried again within the
// first.
const (
	connectTime = 18 * time.Second
	sendTime    = 2 * time.Minute
)

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
	answer      *provision.Imported  // of python3; nil: it was not asked, or has not answered
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

// look places plx as a launch does, and has it look for GPUs. Where plx cannot run, why that is
// is all that is found.
func (v *visit) look(ctx context.Context) {
	placing, cancel := context.WithTimeoutCause(ctx, sendTime, fmt.Errorf("it was not sent within %v", sendTime))
	defer cancel()
	if err := v.host.Meet(placing); err != nil {
		v.notes.unplaced(err)
		return
	}
	v.probe(ctx)
	v.ready = true
}

// probe looks for GPUs, when the host is known to answer. The probe bounds itself: a sound
// nvidia-smi may take long.
func (v *visit) probe(ctx context.Context) {
	if err := v.host.Agent().Reprobe(ctx); err != nil {
		v.notes.failed(GPUs, err, "run nvidia-smi there by hand")
		return
	}
	v.report = v.host.Report
	if v.host.Embedded {
		v.report.AddLocal()
	}
	v.notes.judgeGPUs(placement.Machine{Host: v.host.Resource, Report: &v.report})
}
