package launcher

import (
	"context"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// handOver launches a detached job. It starts all agents and makes the agent
// on the host of worker 0 the driver, which controls the job from then on. It
// waits until all tasks have started, and returns plx's exit status.
func (l *launch) handOver(ctx context.Context) (int, error) {
	var group hosts.Group
	for i, a := range l.agents {
		spec, err := l.spec(i, a, l.placed.Hosts[i].Specs())
		if err != nil {
			return exit.CodePlx, a.Named(err)
		}
		group = append(group, &hosts.Start{Agent: a, Spec: spec})
	}
	defer group.Close()
	done := l.printer.Phase(console.Waiting(l.starting(), nil))
	defer done()
	if err := group.Start(ctx, l.printer); err != nil {
		l.endGroup(group, err)
		return exit.CodePlx, err
	}
	chief := l.chief()
	visitor, err := l.agents[chief].Visit(ctx)
	if err == nil {
		defer visitor.Close()
		var peers []protocol.Peer
		for i, a := range l.agents {
			peers = append(peers, protocol.Peer{Index: i, Host: a.Name(), Addr: group[i].Addr})
		}
		err = group[chief].Conn.Send(protocol.Message{Drive: &protocol.Drive{Plan: l.plan(), Peers: peers}})
	}
	if err != nil {
		l.endGroup(group, err)
		return exit.CodePlx, l.agents[chief].Named(fmt.Errorf("make its agent the driver of the job: %w", err))
	}
	verdict, err := l.awaitStart(visitor)
	done()
	switch {
	case err != nil:
		return exit.CodePlx, err
	case verdict == nil:
		l.printer.Printf("job %s runs detached: plx logs -f, plx attach, plx stop", l.job)
	default:
		l.report(l.record(), *verdict, nil)
		if verdict.Code != 0 {
			return verdict.Code, nil
		}
	}
	if err := l.cfg.Terminal.Print("%s", l.job); err != nil {
		return exit.CodePlx, fmt.Errorf("print the job's id: %w", err)
	}
	return 0, nil
}

// endGroup ends the agents of a detached job that could not be started. An
// agent that endGroup cannot reach ends by itself when its lease (time without
// a message from the launcher) expires.
func (l *launch) endGroup(group hosts.Group, why error) {
	if err := group.End(protocol.Verdict{Code: exit.CodePlx, Reason: why.Error()}, l.cfg.Lease); err != nil {
		l.printer.Error(err)
	}
}

// awaitStart waits until the driver (the process that controls the job), on
// the host of worker 0, reports that every task has started. If the job ends
// before that, awaitStart returns the job's verdict.
func (l *launch) awaitStart(visitor *protocol.Conn) (*protocol.Verdict, error) {
	done := make(chan struct{})
	defer close(done)
	go l.passStops(visitor, done)
	limit := time.AfterFunc(l.cfg.StartTimeout+l.cfg.Lease, func() { visitor.Close() })
	defer limit.Stop()
	chief := l.agents[l.chief()]
	for {
		m, err := visitor.Receive()
		if err != nil && !limit.Stop() {
			return nil, fmt.Errorf("job %s: not every task started within %s; it may start later: plx attach %s, plx stop %s", l.job, l.cfg.StartTimeout, l.job, l.job)
		}
		if err != nil {
			state, stateErr := chief.State(context.Background())
			if stateErr != nil || state.Verdict == nil {
				return nil, chief.Named(fmt.Errorf("lost the agent before every task had started: %w", err))
			}
			m.State = &state
		}
		if s := m.State; s != nil && (s.Verdict != nil || s.JobPhase == protocol.Running) {
			return s.Verdict, nil
		}
	}
}

// passStops forwards stop requests from the user's signals to the agent that
// controls the detached job.
func (l *launch) passStops(visitor *protocol.Conn, done <-chan struct{}) {
	stops := l.signals.listen()
	for {
		select {
		case ask := <-stops:
			stop := protocol.Stop{Grace: ask.Grace, Reason: ask.Reason, Code: ask.Code}
			if err := visitor.Send(protocol.Message{Stop: &stop}); err != nil {
				l.printer.Printf("stop job %s: %v", l.job, err)
			}
		case <-done:
			return
		}
	}
}
